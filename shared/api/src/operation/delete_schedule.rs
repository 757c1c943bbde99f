//! Deletes a schedule.

use dueline_domain::{JobName, ScheduleName};

use super::Operation;

/// Deletes a schedule. Its tasks stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteSchedule {
    /// The job.
    pub job: JobName,
    /// The schedule.
    pub name: ScheduleName,
}

impl Operation for DeleteSchedule {
    type Output = ();
    const NAME: &'static str = "DeleteSchedule";
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
            proto,
        },
    };

    impl Unary for DeleteSchedule {
        type Request = proto::DeleteScheduleRequest;
        type Response = proto::DeleteScheduleResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                name: schedule_name("name", &request.name)?,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::DeleteScheduleRequest {
                job: self.job.to_string(),
                name: self.name.to_string(),
            }
        }

        fn into_response((): ()) -> Self::Response {
            proto::DeleteScheduleResponse {}
        }

        fn from_response(_: Self::Response) -> Result<(), ApiError> {
            Ok(())
        }
    }
}
