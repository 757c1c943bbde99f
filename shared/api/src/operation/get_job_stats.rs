//! Returns statistics of a job.

use dueline_domain::JobName;
use dueline_ports::JobStats;

use super::Operation;

/// Returns statistics of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetJobStats {
    /// The job.
    pub name: JobName,
}

impl Operation for GetJobStats {
    type Output = JobStats;
    const NAME: &'static str = "JobStats";
    const WRITES: bool = false;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{RequestDefaults, Unary, convert::field::job_name, proto, value},
    };

    impl Unary for GetJobStats {
        type Request = proto::JobStatsRequest;
        type Response = proto::JobStatsResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            let name = job_name("name", &request.name)?;
            Ok(Self { name })
        }

        fn into_request(self) -> Self::Request {
            let name = self.name.to_string();
            proto::JobStatsRequest { name }
        }

        fn into_response(stats: JobStats) -> Self::Response {
            let stats = Some(stats.into());
            proto::JobStatsResponse { stats }
        }

        fn from_response(response: Self::Response) -> Result<JobStats, ApiError> {
            value(response.stats)
        }
    }
}
