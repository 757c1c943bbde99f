//! Waits until a caller could claim a task.

use std::time::Duration;

use dueline_domain::{JobName, TaskAddress};

use super::Operation;
use crate::{ApiError, check};

/// Waits until a task of one of these jobs can be claimed, and returns the ones that can, in the order of their dispatch.
/// No task is returned when the wait is over. A task that is returned may be gone by the time its claim arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitAny {
    /// The jobs, at least one.
    pub jobs: Vec<JobName>,
    /// How long to wait.
    pub wait: Duration,
    /// Most tasks to return.
    pub limit: usize,
}

impl WaitAny {
    /// Most jobs in one call.
    pub const JOBS_MAX: usize = 100;
}

impl Operation for WaitAny {
    type Output = Vec<TaskAddress>;
    const NAME: &'static str = "WaitAny";
    const WRITES: bool = false;

    fn check(&mut self) -> Result<(), ApiError> {
        check::wait("wait", Some(self.wait))?;
        check::page_limit(self.limit)?;
        check::waited_jobs(&mut self.jobs, Self::JOBS_MAX)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::field::{self, job_name, job_names, millis, task_id},
        proto,
    };

    impl Unary for WaitAny {
        type Request = proto::WaitAnyRequest;
        type Response = proto::WaitAnyResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                jobs: job_names("jobs", &request.jobs)?,
                wait: Duration::from_millis(request.wait_ms),
                limit: match request.limit {
                    0 => check::PAGE_LEN_DEFAULT,
                    limit => usize::try_from(limit).unwrap_or(usize::MAX),
                },
            })
        }

        fn wait(&self) -> Duration {
            self.wait
        }

        fn into_request(self) -> Self::Request {
            proto::WaitAnyRequest {
                jobs: self.jobs.iter().map(ToString::to_string).collect(),
                wait_ms: millis(self.wait),
                limit: field::count(self.limit),
            }
        }

        fn into_response(tasks: Vec<TaskAddress>) -> Self::Response {
            let name = |task: TaskAddress| proto::ClaimableTask {
                job: task.job.to_string(),
                id: task.id.to_string(),
            };
            proto::WaitAnyResponse {
                tasks: tasks.into_iter().map(name).collect(),
            }
        }

        fn from_response(response: Self::Response) -> Result<Vec<TaskAddress>, ApiError> {
            let address = |task: proto::ClaimableTask| {
                Ok(TaskAddress {
                    job: job_name("tasks.job", &task.job)?,
                    id: task_id("tasks.id", &task.id)?,
                })
            };
            response.tasks.into_iter().map(address).collect()
        }
    }
}
