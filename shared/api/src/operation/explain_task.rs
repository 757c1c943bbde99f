//! Says why a task is not running.

use dueline_domain::{JobName, StateKind, TaskId, Timestamp};

use super::Operation;
use crate::wire_enum::wire_enum;

/// Returns why a task is not running: the first fact that holds it up, and what ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainTask {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
}

/// The one fact that keeps a task from running now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The state of the task.
    pub state: StateKind,
    /// The kind of fact, for programs.
    pub cause: Cause,
    /// The fact, for people.
    pub message: String,
    /// What lets the task go on, for people.
    pub release: String,
    /// When the fact ends by itself, if that is known.
    pub until: Option<Timestamp>,
    /// How many enqueued tasks of the job are dispatched before this one, if it is enqueued.
    pub ahead: Option<u64>,
}

wire_enum! {
    /// What keeps a task from running. Its name on the wire is `snake_case` and never changes.
    Cause

    /// The task has ended.
    Ended = "ended",
    /// The task has ended, but its record could not be delivered to the sink of its job yet.
    Undelivered = "undelivered",
    /// A worker runs the task.
    Running = "running",
    /// A worker has claimed the task and has not begun its run.
    Claimed = "claimed",
    /// The task waits for the end of another one.
    Waiting = "waiting",
    /// The time of the task has not come.
    NotDue = "not_due",
    /// A run has failed, and the wait before the next try is not over.
    Retrying = "retrying",
    /// The job is paused.
    Paused = "paused",
    /// As many tasks of the job run as may at once.
    RunningLimit = "running_limit",
    /// The tasks of the job's fairness keys take turns, and as many are enqueued as keep the workers busy, or as many of this
    /// key run as may at once.
    FairShare = "fair_share",
    /// More tasks of the job are due than its rate lets pass.
    Rate = "rate",
    /// The task is due, and no consumer has enqueued it.
    NotEnqueued = "not_enqueued",
    /// No worker is registered that runs tasks of the job.
    NoWorker = "no_worker",
    /// The task is heavier than the concurrency of every worker that runs tasks of its job.
    TooHeavy = "too_heavy",
    /// Other tasks are dispatched first, or the workers are busy.
    Backlog = "backlog",
}

impl Operation for ExplainTask {
    type Output = Explanation;
    const NAME: &'static str = "ExplainTask";
    const WRITES: bool = false;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{
            RequestDefaults, Unary,
            convert::{
                enums::state_kind,
                field::{job_name, task_id, timestamp_opt},
            },
            proto,
        },
    };

    impl Unary for ExplainTask {
        type Request = proto::ExplainTaskRequest;
        type Response = proto::ExplainTaskResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                id: task_id("id", &request.id)?,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::ExplainTaskRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
            }
        }

        fn into_response(explanation: Explanation) -> Self::Response {
            proto::ExplainTaskResponse {
                state: proto::TaskState::from(explanation.state).into(),
                cause: explanation.cause.name().to_owned(),
                message: explanation.message,
                release: explanation.release,
                until_ms: explanation.until.map(Timestamp::millis),
                ahead: explanation.ahead,
            }
        }

        fn from_response(response: Self::Response) -> Result<Explanation, ApiError> {
            Ok(Explanation {
                state: state_kind("state", response.state)?,
                cause: Cause::from_name(&response.cause),
                message: response.message,
                release: response.release,
                until: timestamp_opt("until", response.until_ms)?,
                ahead: response.ahead,
            })
        }
    }
}
