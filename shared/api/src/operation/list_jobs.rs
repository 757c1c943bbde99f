//! Returns all jobs by name.

use std::sync::Arc;

use dueline_domain::Job;

use super::Operation;

/// Returns all jobs by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListJobs;

impl Operation for ListJobs {
    type Output = Vec<Arc<Job>>;
    const NAME: &'static str = "ListJobs";
    const WRITES: bool = false;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{RequestDefaults, Unary, proto, values},
    };

    impl Unary for ListJobs {
        type Request = proto::ListJobsRequest;
        type Response = proto::ListJobsResponse;

        fn from_request(_: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self)
        }

        fn into_request(self) -> Self::Request {
            proto::ListJobsRequest {}
        }

        fn into_response(jobs: Vec<Arc<Job>>) -> Self::Response {
            let jobs = jobs.iter().map(|job| job.as_ref().into()).collect();
            proto::ListJobsResponse { jobs }
        }

        fn from_response(response: Self::Response) -> Result<Vec<Arc<Job>>, ApiError> {
            let jobs: Vec<Job> = values(response.jobs)?;
            Ok(jobs.into_iter().map(Arc::new).collect())
        }
    }
}
