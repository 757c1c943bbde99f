//! The result of a legal event.

use std::sync::Arc;

use bytes::Bytes;

use super::Modification;
use crate::{Family, Owed, RunRecord, State, TaskOptions, Timestamp, WorkerId, WriteId};

/// A decided change of a task: the fields that one write sets. Nothing else changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// The next state.
    pub state: State,
    /// Runs that used a try.
    pub tries: u32,
    /// Claims lost before a run began.
    pub losses: u32,
    /// Whether the owner is requested to stop the run.
    pub cancel_requested: bool,
    /// Time of this change.
    pub changed_at: Timestamp,
    /// Start of the latest run.
    pub started_at: Option<Timestamp>,
    /// End of the task.
    pub finished_at: Option<Timestamp>,
    /// The worker that owned the task when it ended.
    pub last_owner: Option<WorkerId>,
    /// The name of this write.
    pub write: WriteId,
    /// A run to add to the history.
    pub run: Option<Box<RunRecord>>,
    /// A checkpoint to store.
    pub checkpoint: Option<Bytes>,
    /// A result to store.
    pub result: Option<Bytes>,
    /// An error or reason to store.
    pub error: Option<Arc<str>>,
    /// Fields a user changed.
    pub modified: Option<Box<Modification>>,
    /// Whether the task is redriven: earlier error and result are cleared.
    pub fresh: bool,
    /// What the task owes; only a finished task owes anything.
    pub owed: Option<Box<Owed>>,
    /// What connects the task with other tasks, if that has changed.
    pub family: Option<Box<Family>>,
    /// The rare fields, if a later submit has replaced the task.
    pub options: Option<Box<TaskOptions>>,
}
