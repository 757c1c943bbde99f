//! Returns one job.

use std::sync::Arc;

use dueline_domain::{Job, JobName};

use super::Operation;

/// Returns one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetJob {
    /// The job.
    pub name: JobName,
}

impl Operation for GetJob {
    type Output = Arc<Job>;
    const NAME: &'static str = "GetJob";
    const WRITES: bool = false;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{RequestDefaults, Unary, convert::field::job_name, proto, value},
    };

    impl Unary for GetJob {
        type Request = proto::GetJobRequest;
        type Response = proto::GetJobResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            let name = job_name("name", &request.name)?;
            Ok(Self { name })
        }

        fn into_request(self) -> Self::Request {
            let name = self.name.to_string();
            proto::GetJobRequest { name }
        }

        fn into_response(job: Arc<Job>) -> Self::Response {
            let job = Some(job.as_ref().into());
            proto::GetJobResponse { job }
        }

        fn from_response(response: Self::Response) -> Result<Arc<Job>, ApiError> {
            value(response.job).map(Arc::new)
        }
    }
}
