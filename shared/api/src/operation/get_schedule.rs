//! Returns one schedule.

use crate::ErrorReason;
use dueline_domain::{JobName, ScheduleName};

use super::{Operation, ShownSchedule};

/// How many of the next firings are shown to a caller that names no number.
pub const NEXT_DEFAULT: usize = 5;

/// Most of the next firings that are shown.
pub const NEXT_MAX: usize = 100;

/// Returns one schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetSchedule {
    /// The job.
    pub job: JobName,
    /// The schedule.
    pub name: ScheduleName,
    /// How many of the next firings to show.
    pub next: usize,
}

impl Operation for GetSchedule {
    type Output = ShownSchedule;
    const NAME: &'static str = "GetSchedule";
    const WRITES: bool = false;

    fn check(&mut self) -> Result<(), crate::ApiError> {
        if self.next <= NEXT_MAX {
            return Ok(());
        }
        let message = format!("must be at most {NEXT_MAX}");
        Err(crate::ApiError::invalid(
            "next",
            ErrorReason::OutOfRange,
            message,
        ))
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{
            RequestDefaults, Unary,
            convert::field::{count, job_name, schedule_name},
            proto, value,
        },
    };

    impl Unary for GetSchedule {
        type Request = proto::GetScheduleRequest;
        type Response = proto::GetScheduleResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                name: schedule_name("name", &request.name)?,
                next: request.next.map_or(NEXT_DEFAULT, |next| {
                    usize::try_from(next).unwrap_or(usize::MAX)
                }),
            })
        }

        fn into_request(self) -> Self::Request {
            proto::GetScheduleRequest {
                job: self.job.to_string(),
                name: self.name.to_string(),
                next: Some(count(self.next)),
            }
        }

        fn into_response(schedule: ShownSchedule) -> Self::Response {
            let schedule = Some(schedule.into());
            proto::GetScheduleResponse { schedule }
        }

        fn from_response(response: Self::Response) -> Result<ShownSchedule, ApiError> {
            value(response.schedule)
        }
    }
}
