//! Deletes a job that has no unfinished tasks.

use dueline_domain::JobName;

use super::Operation;

/// Deletes a job that has no unfinished tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteJob {
    /// The job.
    pub name: JobName,
}

impl Operation for DeleteJob {
    type Output = ();
    const NAME: &'static str = "DeleteJob";
    const WRITES: bool = true;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{RequestDefaults, Unary, convert::field::job_name, proto},
    };

    impl Unary for DeleteJob {
        type Request = proto::DeleteJobRequest;
        type Response = proto::DeleteJobResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            let name = job_name("name", &request.name)?;
            Ok(Self { name })
        }

        fn into_request(self) -> Self::Request {
            let name = self.name.to_string();
            proto::DeleteJobRequest { name }
        }

        fn into_response((): ()) -> Self::Response {
            proto::DeleteJobResponse {}
        }

        fn from_response(_: Self::Response) -> Result<(), ApiError> {
            Ok(())
        }
    }
}
