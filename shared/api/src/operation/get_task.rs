//! Returns one task.

use std::time::Duration;

use dueline_domain::{JobName, Task, TaskId};

use super::Operation;
use crate::{ApiError, check};

/// Returns one task. With `wait` the answer comes when the task has ended, or when the wait is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetTask {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// How long to wait for its end.
    pub wait: Option<Duration>,
}

impl Operation for GetTask {
    type Output = Task;
    const NAME: &'static str = "GetTask";
    const WRITES: bool = false;

    fn check(&mut self) -> Result<(), ApiError> {
        check::wait("wait", self.wait)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::field::{job_name, millis, task_id},
        proto, value,
    };

    impl Unary for GetTask {
        type Request = proto::GetTaskRequest;
        type Response = proto::GetTaskResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                id: task_id("id", &request.id)?,
                wait: request.wait_ms.map(Duration::from_millis),
            })
        }

        fn wait(&self) -> Duration {
            self.wait.unwrap_or_default()
        }

        fn into_request(self) -> Self::Request {
            proto::GetTaskRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
                wait_ms: self.wait.map(millis),
            }
        }

        fn into_response(task: Task) -> Self::Response {
            let task = Some(task.into());
            proto::GetTaskResponse { task }
        }

        fn from_response(response: Self::Response) -> Result<Task, ApiError> {
            value(response.task)
        }
    }
}
