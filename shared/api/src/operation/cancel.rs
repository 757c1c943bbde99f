//! Cancels a task.

use std::sync::Arc;

use dueline_domain::{JobName, RunningCancel, Task, TaskId};

use super::Operation;
use crate::{ApiError, check};

/// Cancels a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// What to do when a worker owns it.
    pub running: RunningCancel,
    /// Why, for people.
    pub reason: Option<Arc<str>>,
    /// Whether everything that waits for the task, or for one of those, is cancelled too. Runs are asked to stop.
    pub family: bool,
}

impl Operation for Cancel {
    type Output = Task;
    const NAME: &'static str = "Cancel";
    const WRITES: bool = true;

    fn check(&mut self) -> Result<(), ApiError> {
        check::cancel_reason(self.reason.as_deref())
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::field::{job_name, string_opt, task_id},
        proto, value,
    };

    impl Unary for Cancel {
        type Request = proto::CancelRequest;
        type Response = proto::CancelResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                id: task_id("id", &request.id)?,
                running: request.running_cancel()?,
                reason: request.reason.map(Arc::from),
                family: request.family,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::CancelRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
                running: proto::RunningCancel::from(self.running).into(),
                reason: string_opt(self.reason),
                family: self.family,
            }
        }

        fn into_response(task: Task) -> Self::Response {
            let task = Some(task.into());
            proto::CancelResponse { task }
        }

        fn from_response(response: Self::Response) -> Result<Task, ApiError> {
            value(response.task)
        }
    }
}
