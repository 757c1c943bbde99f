//! Returns one job.

use std::sync::Arc;

use dueline_domain::{Job, JobName};

use super::Operation;

/// Returns one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetJob {
    /// The job.
    pub name: JobName,
    /// Whether its schedules are read, for [`ShownJob::frequency`].
    pub frequency: bool,
}

impl GetJob {
    /// The definition alone, for those who need it to answer something else.
    pub const fn definition(name: JobName) -> Self {
        Self {
            name,
            frequency: false,
        }
    }
}

/// A job, and when it fires.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownJob {
    /// The job.
    pub job: Arc<Job>,
    /// The rule of its schedule, if the job has exactly one and that one fires again. Of several schedules none stands for
    /// the job.
    pub frequency: Option<String>,
}

impl Operation for GetJob {
    type Output = ShownJob;
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
            Ok(Self {
                name: job_name("name", &request.name)?,
                frequency: request.frequency.unwrap_or(true),
            })
        }

        fn into_request(self) -> Self::Request {
            proto::GetJobRequest {
                name: self.name.to_string(),
                frequency: Some(self.frequency),
            }
        }

        fn into_response(shown: ShownJob) -> Self::Response {
            proto::GetJobResponse {
                job: Some(shown.job.as_ref().into()),
                frequency: shown.frequency,
            }
        }

        fn from_response(response: Self::Response) -> Result<ShownJob, ApiError> {
            Ok(ShownJob {
                job: value(response.job).map(Arc::new)?,
                frequency: response.frequency,
            })
        }
    }
}
