//! Claims a task that its owner has chosen.

use dueline_domain::{ClaimLifetime, JobName, TaskId, WorkerId, WriteId};

use super::{Operation, TaskLease};
use crate::{ApiError, Assignment, check};

/// Claims one task for `owner`, without its message: an enqueued task, or one whose time has come. The answer holds the
/// fencing token of the claim, which only its owner learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimTask {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// The new owner. It need not be registered.
    pub owner: WorkerId,
    /// How long the claim lasts.
    pub lifetime: ClaimLifetime,
    /// Names the request: a repetition with the same name gets the same claim.
    pub request: Option<WriteId>,
}

/// A task that was claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedTask {
    /// The task, with its token.
    pub assignment: Assignment,
    /// How long the claim lasts.
    pub lease: TaskLease,
}

impl Operation for ClaimTask {
    type Output = ClaimedTask;
    const NAME: &'static str = "ClaimTask";
    const WRITES: bool = true;

    fn check(&mut self) -> Result<(), ApiError> {
        check::lifetime(self.lifetime)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use std::time::Duration;

    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::field::{self, job_name, millis, task_id},
        proto::{self, claim_task_request::Lifetime},
        value,
    };

    impl Unary for ClaimTask {
        type Request = proto::ClaimTaskRequest;
        type Response = proto::ClaimTaskResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                id: task_id("id", &request.id)?,
                owner: check::owner(&request.owner)?,
                lifetime: match request.lifetime {
                    None | Some(Lifetime::Never(false)) => ClaimLifetime::OfJob,
                    Some(Lifetime::Never(true)) => ClaimLifetime::Never,
                    Some(Lifetime::LifetimeMs(ms)) => ClaimLifetime::For(Duration::from_millis(ms)),
                },
                request: match request.write {
                    0 => None,
                    write => Some(field::write_id("write", write)?),
                },
            })
        }

        fn into_request(self) -> Self::Request {
            proto::ClaimTaskRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
                owner: self.owner.to_string(),
                lifetime: match self.lifetime {
                    ClaimLifetime::OfJob => None,
                    ClaimLifetime::Never => Some(Lifetime::Never(true)),
                    ClaimLifetime::For(lifetime) => Some(Lifetime::LifetimeMs(millis(lifetime))),
                },
                write: self.request.map_or(0, WriteId::get),
            }
        }

        fn into_response(claimed: ClaimedTask) -> Self::Response {
            proto::ClaimTaskResponse {
                assignment: Some(claimed.assignment.into()),
                lease: Some(claimed.lease.into()),
            }
        }

        fn from_response(response: Self::Response) -> Result<ClaimedTask, ApiError> {
            Ok(ClaimedTask {
                assignment: value(response.assignment)?,
                lease: value(response.lease)?,
            })
        }
    }
}
