//! Pauses or resumes a schedule.

use std::sync::Arc;

use dueline_domain::{JobName, ScheduleName};

use super::{Operation, ShownSchedule};

/// Pauses or resumes a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseSchedule {
    /// The job.
    pub job: JobName,
    /// The schedule.
    pub name: ScheduleName,
    /// Whether it is paused from now on.
    pub paused: bool,
    /// Why.
    pub reason: Option<Arc<str>>,
}

impl Operation for PauseSchedule {
    type Output = ShownSchedule;
    const NAME: &'static str = "PauseSchedule";
    const WRITES: bool = true;

    fn check(&mut self) -> Result<(), crate::ApiError> {
        crate::check::field::short_text("reason", self.reason.as_deref())
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{
            RequestDefaults, Unary,
            convert::field::{job_name, schedule_name, string_opt, text_opt},
            proto, value,
        },
    };

    impl Unary for PauseSchedule {
        type Request = proto::PauseScheduleRequest;
        type Response = proto::PauseScheduleResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                name: schedule_name("name", &request.name)?,
                paused: request.paused,
                reason: text_opt(request.reason),
            })
        }

        fn into_request(self) -> Self::Request {
            proto::PauseScheduleRequest {
                job: self.job.to_string(),
                name: self.name.to_string(),
                paused: self.paused,
                reason: string_opt(self.reason),
            }
        }

        fn into_response(schedule: ShownSchedule) -> Self::Response {
            let schedule = Some(schedule.into());
            proto::PauseScheduleResponse { schedule }
        }

        fn from_response(response: Self::Response) -> Result<ShownSchedule, ApiError> {
            value(response.schedule)
        }
    }
}
