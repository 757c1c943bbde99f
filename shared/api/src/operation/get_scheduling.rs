//! Returns what the scheduler knows of a task.

use dueline_domain::{JobName, StateKind, Task, TaskId, Timestamp};

use super::Operation;

/// Returns the scheduling record of a task: its job, when the scheduler processes it next, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetScheduling {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
}

/// The scheduling record of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// When the scheduler processes the task next; `None` when it has nothing to do any more, or as long as the owner of a
    /// claim that never expires keeps it.
    pub next_execution: Option<Timestamp>,
    /// How far it is.
    pub status: SchedulingStatus,
}

/// How far a task is, in three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingStatus {
    /// No run of it has begun that counts.
    New,
    /// A run has begun, and the task has not ended: it runs, or waits for another try.
    Started,
    /// It has ended.
    Completed,
}

impl SchedulingStatus {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::New, Self::Started, Self::Completed];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Started => "started",
            Self::Completed => "completed",
        }
    }

    /// The status of a name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl Scheduling {
    /// The record of `task`.
    pub fn of(task: &Task) -> Self {
        let never = task.lease().is_some_and(|lease| lease.never_ends());
        Self {
            job: task.job.clone(),
            id: task.id,
            next_execution: task.trigger_at().filter(|_| !never),
            status: match task.kind() {
                kind if kind.is_final() => SchedulingStatus::Completed,
                StateKind::Processing => SchedulingStatus::Started,
                _ if task.tries > 0 => SchedulingStatus::Started,
                _ => SchedulingStatus::New,
            },
        }
    }
}

impl Operation for GetScheduling {
    type Output = Scheduling;
    const NAME: &'static str = "GetScheduling";
    const WRITES: bool = false;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError, ErrorReason,
        grpc::{
            RequestDefaults, Unary,
            convert::field::{job_name, task_id, timestamp_opt},
            proto,
        },
    };

    impl Unary for GetScheduling {
        type Request = proto::GetSchedulingRequest;
        type Response = proto::GetSchedulingResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                id: task_id("id", &request.id)?,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::GetSchedulingRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
            }
        }

        fn into_response(record: Scheduling) -> Self::Response {
            proto::GetSchedulingResponse {
                job: record.job.to_string(),
                id: record.id.to_string(),
                next_execution_ms: record.next_execution.map(Timestamp::millis),
                status: record.status.name().to_owned(),
            }
        }

        fn from_response(response: Self::Response) -> Result<Scheduling, ApiError> {
            let status = SchedulingStatus::from_name(&response.status);
            Ok(Scheduling {
                job: job_name("job", &response.job)?,
                id: task_id("id", &response.id)?,
                next_execution: timestamp_opt("next_execution_ms", response.next_execution_ms)?,
                status: status.ok_or_else(|| {
                    let message = "is none that this program knows";
                    ApiError::invalid("status", ErrorReason::UnknownValue, message)
                })?,
            })
        }
    }
}
