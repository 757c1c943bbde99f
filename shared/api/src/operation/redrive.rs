//! Runs a failed or trashed task again.

use dueline_domain::{JobName, Task, TaskId};

use super::Operation;

/// Runs a failed or trashed task again, with a fresh count of tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// Whether those that were cancelled because of it wait for it again. Then the task may have been redriven before.
    pub with_followers: bool,
}

impl Operation for Redrive {
    type Output = Task;
    const NAME: &'static str = "Redrive";
    const WRITES: bool = true;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{
            RequestDefaults, Unary,
            convert::field::{job_name, task_id},
            proto, value,
        },
    };

    impl Unary for Redrive {
        type Request = proto::RedriveRequest;
        type Response = proto::RedriveResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                id: task_id("id", &request.id)?,
                with_followers: request.with_followers,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::RedriveRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
                with_followers: self.with_followers,
            }
        }

        fn into_response(task: Task) -> Self::Response {
            let task = Some(task.into());
            proto::RedriveResponse { task }
        }

        fn from_response(response: Self::Response) -> Result<Task, ApiError> {
            value(response.task)
        }
    }
}
