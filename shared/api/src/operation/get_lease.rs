//! Returns how long the claim of a task still lasts.

use std::time::Duration;

use dueline_domain::{JobName, Task, TaskId, Timestamp, WorkerId};

use super::Operation;

/// Returns who owns a task, and how long its claim still lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetLease {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
}

/// The claim of a task at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLease {
    /// The owner, if there is one.
    pub owner: Option<WorkerId>,
    /// How long the claim still lasts.
    pub ends: LeaseEnd,
}

/// How long a claim still lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The task has no owner.
    None,
    /// For this long. Zero: it is over, and the task is about to be enqueued again.
    In(Duration),
    /// Until its owner ends it.
    Never,
}

impl TaskLease {
    /// The claim of `task` at `now`.
    pub fn of(task: &Task, now: Timestamp) -> Self {
        let lease = task.lease();
        Self {
            owner: lease.map(|lease| lease.worker.clone()),
            ends: match lease {
                None => LeaseEnd::None,
                Some(lease) if lease.never_ends() => LeaseEnd::Never,
                Some(lease) => LeaseEnd::In(lease.ends_at().since(now)),
            },
        }
    }
}

impl LeaseEnd {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::In(_) => "in",
            Self::Never => "never",
        }
    }
}

impl Operation for GetLease {
    type Output = TaskLease;
    const NAME: &'static str = "GetLease";
    const WRITES: bool = false;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{
            RequestDefaults, Unary,
            convert::field::{job_name, millis, task_id, worker_id},
            proto::{self, task_lease::Ends},
            value,
        },
    };

    impl Unary for GetLease {
        type Request = proto::GetLeaseRequest;
        type Response = proto::GetLeaseResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                id: task_id("id", &request.id)?,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::GetLeaseRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
            }
        }

        fn into_response(lease: TaskLease) -> Self::Response {
            let lease = Some(lease.into());
            proto::GetLeaseResponse { lease }
        }

        fn from_response(response: Self::Response) -> Result<TaskLease, ApiError> {
            value(response.lease)
        }
    }

    impl From<TaskLease> for proto::TaskLease {
        fn from(lease: TaskLease) -> Self {
            Self {
                owner: lease.owner.map(|owner| owner.to_string()),
                ends: match lease.ends {
                    LeaseEnd::None => None,
                    LeaseEnd::In(left) => Some(Ends::InMs(millis(left))),
                    LeaseEnd::Never => Some(Ends::Never(true)),
                },
            }
        }
    }

    impl TryFrom<proto::TaskLease> for TaskLease {
        type Error = ApiError;

        fn try_from(lease: proto::TaskLease) -> Result<Self, ApiError> {
            let owner = lease.owner.map(|owner| worker_id("lease.owner", &owner));
            Ok(Self {
                owner: owner.transpose()?,
                ends: match lease.ends {
                    Some(Ends::InMs(ms)) => LeaseEnd::In(Duration::from_millis(ms)),
                    Some(Ends::Never(true)) => LeaseEnd::Never,
                    Some(Ends::Never(false)) | None => LeaseEnd::None,
                },
            })
        }
    }
}
