//! Changes a task that no worker owns.

use dueline_domain::{JobName, Modification, Task, TaskId};

use super::Operation;
use crate::{ApiError, check};

/// Changes a task that no worker owns.
#[derive(Clone, Debug, PartialEq)]
pub struct Modify {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// What changes.
    pub change: Modification,
}

impl Operation for Modify {
    type Output = Task;
    const NAME: &'static str = "Modify";
    const WRITES: bool = true;

    fn check(&mut self) -> Result<(), ApiError> {
        check::modification(&self.change)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::{
            field::{job_name, task_id},
            modification,
        },
        proto, value,
    };

    impl Unary for Modify {
        type Request = proto::ModifyRequest;
        type Response = proto::ModifyResponse;

        fn from_request(
            request: Self::Request,
            defaults: &RequestDefaults,
        ) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                id: task_id("id", &request.id)?,
                change: modification(request, defaults.clock.now())?,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::ModifyRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
                ..self.change.into()
            }
        }

        fn into_response(task: Task) -> Self::Response {
            let task = Some(task.into());
            proto::ModifyResponse { task }
        }

        fn from_response(response: Self::Response) -> Result<Task, ApiError> {
            value(response.task)
        }
    }
}
