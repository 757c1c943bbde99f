//! Pauses or resumes a job.

use std::sync::Arc;

use dueline_domain::{Job, JobName};

use super::Operation;

/// Pauses or resumes a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseJob {
    /// The job.
    pub name: JobName,
    /// Whether it is paused from now on.
    pub paused: bool,
}

impl Operation for PauseJob {
    type Output = Arc<Job>;
    const NAME: &'static str = "PauseJob";
    const WRITES: bool = true;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{RequestDefaults, Unary, convert::field::job_name, proto, value},
    };

    impl Unary for PauseJob {
        type Request = proto::PauseJobRequest;
        type Response = proto::PauseJobResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                name: job_name("name", &request.name)?,
                paused: request.paused,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::PauseJobRequest {
                name: self.name.to_string(),
                paused: self.paused,
            }
        }

        fn into_response(job: Arc<Job>) -> Self::Response {
            let job = Some(job.as_ref().into());
            proto::PauseJobResponse { job }
        }

        fn from_response(response: Self::Response) -> Result<Arc<Job>, ApiError> {
            value(response.job).map(Arc::new)
        }
    }
}
