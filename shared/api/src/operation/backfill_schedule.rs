//! Carries out all firings of a range of time.

use dueline_domain::{JobName, ScheduleName, Timestamp};

use super::{Operation, ShownSchedule};

/// Carries out all firings of a range of time, whatever the overlap policy says. A firing whose task exists creates no second
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackfillSchedule {
    /// The job.
    pub job: JobName,
    /// The schedule.
    pub name: ScheduleName,
    /// Where the range begins.
    pub from: Timestamp,
    /// Where it ends; not part of it.
    pub to: Timestamp,
}

impl Operation for BackfillSchedule {
    type Output = ShownSchedule;
    const NAME: &'static str = "BackfillSchedule";
    const WRITES: bool = true;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{
            RequestDefaults, Unary,
            convert::field::{job_name, schedule_name, timestamp},
            proto, value,
        },
    };

    impl Unary for BackfillSchedule {
        type Request = proto::BackfillScheduleRequest;
        type Response = proto::BackfillScheduleResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                name: schedule_name("name", &request.name)?,
                from: timestamp("from", request.from_ms)?,
                to: timestamp("to", request.to_ms)?,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::BackfillScheduleRequest {
                job: self.job.to_string(),
                name: self.name.to_string(),
                from_ms: self.from.millis(),
                to_ms: self.to.millis(),
            }
        }

        fn into_response(schedule: ShownSchedule) -> Self::Response {
            let schedule = Some(schedule.into());
            proto::BackfillScheduleResponse { schedule }
        }

        fn from_response(response: Self::Response) -> Result<ShownSchedule, ApiError> {
            value(response.schedule)
        }
    }
}
