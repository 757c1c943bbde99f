//! What a watch reports about a change of a task.

use crate::{JobName, StateKind, Task, TaskId, Timestamp, WorkerId, hash::fnv1a};

/// What has happened to a watched task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// It was stored.
    Posted,
    /// It has moved, or was changed by a user, and has not ended.
    Changed,
    /// It has ended.
    Ended,
    /// It is not stored any more.
    Removed,
}

impl ChangeKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Posted, Self::Changed, Self::Ended, Self::Removed];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posted => "posted",
            Self::Changed => "changed",
            Self::Ended => "ended",
            Self::Removed => "removed",
        }
    }
}

/// A change of a task, as a watch reports it: enough to know whether the task itself has to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskNews {
    /// What has happened.
    pub kind: ChangeKind,
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// When it happened.
    pub at: Timestamp,
    /// The task as it is since then; `None` when it is not stored any more.
    pub shown: Option<ShownTask>,
}

/// The part of a task whose changes a watch reports. A heartbeat, a checkpoint and a settled effect change none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownTask {
    /// Its state.
    pub state: StateKind,
    /// When it is first due.
    pub run_at: Timestamp,
    /// Its priority.
    pub priority: i32,
    /// The number of its latest run.
    pub attempt: Option<u32>,
    /// Its owner.
    pub owner: Option<WorkerId>,
    /// Whether its run was asked to stop.
    pub cancel_requested: bool,
}

impl ShownTask {
    /// What a watch reports about a task.
    pub fn of(task: &Task) -> Self {
        Self {
            state: task.kind(),
            run_at: task.run_at,
            priority: i32::from(task.priority.get()),
            attempt: task.latest_attempt(),
            owner: task.worker().cloned(),
            cancel_requested: task.cancel_requested,
        }
    }

    /// A number by which a reader recognises what it has got before.
    pub fn fingerprint(&self) -> u64 {
        let owner = self.owner.as_ref().map_or("", WorkerId::as_str);
        let text = format!(
            "{} {} {} {:?} {} {owner}",
            self.state,
            self.run_at.millis(),
            self.priority,
            self.attempt,
            self.cancel_requested,
        );
        fnv1a(text.bytes())
    }
}

impl TaskNews {
    /// A task was stored.
    pub fn posted(task: &Task) -> Self {
        Self::of(ChangeKind::Posted, task)
    }

    /// The change to report of a task that looked like `before`, or of one that was not reported yet; `None` when it
    /// looks the same.
    pub fn since(before: Option<&ShownTask>, task: &Task) -> Option<Self> {
        let had_ended = before.is_some_and(|before| before.state.is_final());
        let kind = match task.kind().is_final() && !had_ended {
            true => ChangeKind::Ended,
            false => ChangeKind::Changed,
        };
        let news = Self::of(kind, task);
        (news.shown.as_ref() != before).then_some(news)
    }

    /// A task is not stored any more.
    pub const fn removed(job: JobName, id: TaskId, at: Timestamp) -> Self {
        Self {
            kind: ChangeKind::Removed,
            job,
            id,
            at,
            shown: None,
        }
    }

    fn of(kind: ChangeKind, task: &Task) -> Self {
        Self {
            kind,
            job: task.job.clone(),
            id: task.id,
            at: task.changed_at,
            shown: Some(ShownTask::of(task)),
        }
    }
}
