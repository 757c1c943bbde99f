//! Fires a schedule now.

use dueline_domain::{JobName, ScheduleName};

use super::{Operation, ShownSchedule};

/// Fires a schedule now, whatever its rule says, also while it is paused. The overlap policy applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerSchedule {
    /// The job.
    pub job: JobName,
    /// The schedule.
    pub name: ScheduleName,
}

impl Operation for TriggerSchedule {
    type Output = ShownSchedule;
    const NAME: &'static str = "TriggerSchedule";
    const WRITES: bool = true;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{
            RequestDefaults, Unary,
            convert::field::{job_name, schedule_name},
            proto, value,
        },
    };

    impl Unary for TriggerSchedule {
        type Request = proto::TriggerScheduleRequest;
        type Response = proto::TriggerScheduleResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                name: schedule_name("name", &request.name)?,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::TriggerScheduleRequest {
                job: self.job.to_string(),
                name: self.name.to_string(),
            }
        }

        fn into_response(schedule: ShownSchedule) -> Self::Response {
            let schedule = Some(schedule.into());
            proto::TriggerScheduleResponse { schedule }
        }

        fn from_response(response: Self::Response) -> Result<ShownSchedule, ApiError> {
            value(response.schedule)
        }
    }
}
