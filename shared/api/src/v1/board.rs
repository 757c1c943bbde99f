//! What a board shows of tasks.

use dueline_domain::{JobName, StateKind, TaskAddress, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{RunView, Time, as_text};
use crate::operation::{Explanation, Scheduling, TaskRuns};

/// Tasks that can be claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimableList {
    /// The tasks, each job's in the order of their dispatch; none when the wait was over.
    pub tasks: Vec<ClaimableView>,
}

/// A task that can be claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimableView {
    /// The job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
}

impl From<Vec<TaskAddress>> for ClaimableList {
    fn from(tasks: Vec<TaskAddress>) -> Self {
        let view = |task: TaskAddress| ClaimableView {
            job: task.job,
            id: task.id,
        };
        Self {
            tasks: tasks.into_iter().map(view).collect(),
        }
    }
}

/// The scheduling record of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchedulingView {
    /// The job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// When the scheduler processes it next: its trigger time. Null when there is nothing to do any more, or while a claim
    /// lasts that never expires.
    pub next_execution: Option<Time>,
    /// `new`: no run has begun; `started`: one has, and the task has not ended; `completed`: it has ended.
    #[schema(example = "started")]
    pub status: String,
}

impl From<Scheduling> for SchedulingView {
    fn from(record: Scheduling) -> Self {
        Self {
            job: record.job,
            id: record.id,
            next_execution: record.next_execution.map(Into::into),
            status: record.status.name().to_owned(),
        }
    }
}

/// The one fact that keeps a task from running now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplanationView {
    /// The state of the task.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub state: StateKind,
    /// The kind of fact, for programs: `ended`, `undelivered`, `running`, `claimed`, `waiting`, `not_due`, `retrying`, `paused`,
    /// `running_limit`, `rate`, `not_enqueued`, `no_worker`, `too_heavy`, `backlog`.
    #[schema(example = "no_worker")]
    pub cause: String,
    /// The fact, for people.
    pub message: String,
    /// What lets the task go on, for people.
    pub release: String,
    /// When the fact ends by itself; null when that is unknown.
    pub until: Option<Time>,
    /// How many enqueued tasks of the job are dispatched before this one; null when it is not enqueued.
    pub ahead: Option<u64>,
}

impl From<Explanation> for ExplanationView {
    fn from(explanation: Explanation) -> Self {
        Self {
            state: explanation.state,
            cause: explanation.cause.name().to_owned(),
            message: explanation.message,
            release: explanation.release,
            until: explanation.until.map(Into::into),
            ahead: explanation.ahead,
        }
    }
}

/// The runs of a task that are over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunsView {
    /// The first run, and the latest ones, oldest first.
    pub runs: Vec<RunView>,
    /// Runs that are no longer kept, between the first and the second one.
    pub dropped: u32,
}

impl From<TaskRuns> for RunsView {
    fn from(runs: TaskRuns) -> Self {
        Self {
            runs: runs.runs.into_iter().map(Into::into).collect(),
            dropped: runs.dropped,
        }
    }
}
