//! Creates or replaces a schedule.

use dueline_domain::{JobName, ScheduleName, ScheduleSpec};

use super::{Operation, ShownSchedule};
use crate::{ApiError, check};

/// Creates or replaces a schedule. The next firing moves only if the rule changes.
#[derive(Clone, Debug, PartialEq)]
pub struct PutSchedule {
    /// The job.
    pub job: JobName,
    /// The schedule.
    pub name: ScheduleName,
    /// Its settings. The service checks the rule.
    pub spec: ScheduleSpec,
}

impl Operation for PutSchedule {
    type Output = ShownSchedule;
    const NAME: &'static str = "PutSchedule";
    const WRITES: bool = true;

    fn check(&mut self) -> Result<(), ApiError> {
        check::schedule(&self.job, &mut self.spec)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::{
            field::{job_name, required, schedule_name},
            schedule_spec,
        },
        proto, value,
    };

    impl Unary for PutSchedule {
        type Request = proto::PutScheduleRequest;
        type Response = proto::PutScheduleResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            let job = job_name("job", &request.job)?;
            Ok(Self {
                name: schedule_name("name", &request.name)?,
                spec: schedule_spec(required("spec", request.spec)?, &job)?,
                job,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::PutScheduleRequest {
                job: self.job.to_string(),
                name: self.name.to_string(),
                spec: Some(self.spec.into()),
            }
        }

        fn into_response(schedule: ShownSchedule) -> Self::Response {
            let schedule = Some(schedule.into());
            proto::PutScheduleResponse { schedule }
        }

        fn from_response(response: Self::Response) -> Result<ShownSchedule, ApiError> {
            value(response.schedule)
        }
    }
}
