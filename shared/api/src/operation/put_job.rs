//! Creates or replaces a job.

use std::sync::Arc;

use dueline_domain::Job;

use super::Operation;
use crate::{ApiError, check};

/// Creates or replaces a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PutJob {
    /// The definition. The service sets its creator and its times.
    pub job: Job,
    /// Whether the job stays paused if it exists and is paused, even if the definition says otherwise.
    pub keeps_pause: bool,
}

impl From<Job> for PutJob {
    fn from(job: Job) -> Self {
        Self {
            job,
            keeps_pause: false,
        }
    }
}

impl Operation for PutJob {
    type Output = Arc<Job>;
    const NAME: &'static str = "PutJob";
    const WRITES: bool = true;

    fn check(&mut self) -> Result<(), ApiError> {
        check::job(&self.job)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::{field::required, job_or},
        proto, value,
    };

    impl Unary for PutJob {
        type Request = proto::PutJobRequest;
        type Response = proto::PutJobResponse;

        fn from_request(
            request: Self::Request,
            defaults: &RequestDefaults,
        ) -> Result<Self, ApiError> {
            let job = required("job", request.job)?;
            Ok(Self {
                keeps_pause: job.paused.is_none(),
                job: job_or(job, &defaults.policy)?,
            })
        }

        fn into_request(self) -> Self::Request {
            let mut job = proto::Job::from(&self.job);
            if self.keeps_pause {
                job.paused = None;
            }
            proto::PutJobRequest { job: Some(job) }
        }

        fn into_response(job: Arc<Job>) -> Self::Response {
            let job = Some(job.as_ref().into());
            proto::PutJobResponse { job }
        }

        fn from_response(response: Self::Response) -> Result<Arc<Job>, ApiError> {
            value(response.job).map(Arc::new)
        }
    }
}
