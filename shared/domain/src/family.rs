//! Families: tasks that wait for other tasks.

use std::{fmt, time::Duration};

use crate::{JobName, NewTask, StateKind, Task, TaskId, Timestamp};

/// Names one task of any job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskAddress {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
}

impl fmt::Display for TaskAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.id)
    }
}

/// How a task has ended, as the tasks that wait for it see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskEnd {
    /// A run succeeded.
    Succeeded,
    /// A run failed for good, or no try was left.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was trashed.
    Trashed,
    /// A gate discarded it.
    Dropped,
    /// It was deleted before the task that waits for it was known to it.
    Deleted,
}

impl TaskEnd {
    /// All ends.
    pub const ALL: [Self; 6] = [
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Trashed,
        Self::Dropped,
        Self::Deleted,
    ];

    /// The end of a task in a final state.
    pub const fn of(kind: StateKind) -> Option<Self> {
        match kind {
            StateKind::Succeeded => Some(Self::Succeeded),
            StateKind::Failed => Some(Self::Failed),
            StateKind::Cancelled => Some(Self::Cancelled),
            StateKind::Trashed => Some(Self::Trashed),
            StateKind::Dropped => Some(Self::Dropped),
            _ => None,
        }
    }

    /// The name on the wire and in stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Trashed => "trashed",
            Self::Dropped => "dropped",
            Self::Deleted => "deleted",
        }
    }

    /// The end of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.name() == name)
    }

    /// The end as the verb of a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "was cancelled",
            Self::Trashed => "was trashed",
            Self::Dropped => "was dropped",
            Self::Deleted => "was deleted",
        }
    }
}

/// Which ends of its predecessors let a task go on. Any other end cancels it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TriggerOn {
    /// Each predecessor must succeed.
    #[default]
    Success,
    /// Each predecessor must end without success.
    Failure,
    /// Each predecessor must end, no matter how.
    Always,
}

impl TriggerOn {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Success, Self::Failure, Self::Always];

    /// The name on the wire and in stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Always => "always",
        }
    }

    /// The rule of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// Whether a predecessor that ended like this lets the task go on. What happened to a deleted one is unknown, so it
    /// satisfies only a rule that asks for nothing.
    pub const fn accepts(self, end: TaskEnd) -> bool {
        match self {
            Self::Success => matches!(end, TaskEnd::Succeeded),
            Self::Failure => !matches!(end, TaskEnd::Succeeded | TaskEnd::Deleted),
            Self::Always => true,
        }
    }
}

/// A task that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// The task.
    pub task: TaskAddress,
    /// How it ended, once the task that waits has been told.
    pub end: Option<TaskEnd>,
}

impl Predecessor {
    /// A predecessor that is not known to have ended.
    pub const fn open(task: TaskAddress) -> Self {
        Self { task, end: None }
    }
}

/// What connects a task with other tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// The tasks that this one waits for. Those without an end are the set of what it still waits for.
    pub after: Vec<Predecessor>,
    /// Which of their ends let it go on.
    pub trigger_on: TriggerOn,
    /// Whether other tasks may wait for this one, so that its end has to be told to them. Set by the first of them,
    /// while this task has not ended.
    pub has_followers: bool,
}

impl Family {
    /// When a task that waits is first checked.
    pub const CHECK_FIRST: Duration = Duration::from_secs(60);
    /// Longest time between two checks of a task that waits.
    pub const CHECK_MAX: Duration = Duration::from_secs(900);

    /// The predecessors that are not known to have ended.
    pub fn open(&self) -> impl Iterator<Item = &TaskAddress> {
        let open = self.after.iter().filter(|one| one.end.is_none());
        open.map(|one| &one.task)
    }

    /// Whether the task still waits for another one.
    pub fn is_open(&self) -> bool {
        self.open().next().is_some()
    }

    /// Why a predecessor that ended like this does not let the task go on; `None` if it does.
    pub fn refusal(&self, task: &TaskAddress, end: TaskEnd) -> Option<String> {
        let words = end.words();
        (!self.trigger_on.accepts(end)).then(|| format!("predecessor {task} {words}"))
    }

    /// Whether two submits ask for the same.
    pub(crate) fn matches_submit(&self, submit: &Self) -> bool {
        // Destructured without `..`, so that a new field does not compile before it is compared or listed here.
        let Self {
            after,
            trigger_on,
            // The predecessors and followers of the stored task have moved on since.
            has_followers: _,
        } = submit;
        let same = |(one, other): (&Predecessor, &Predecessor)| one.task == other.task;
        self.trigger_on == *trigger_on
            && self.after.len() == after.len()
            && self.after.iter().zip(after).all(same)
    }

    /// When a task that has waited since `created_at` is checked again: the time between two checks doubles.
    pub(crate) fn next_check(created_at: Timestamp, now: Timestamp) -> Timestamp {
        let waited = now.since(created_at);
        now.after(waited.clamp(Self::CHECK_FIRST, Self::CHECK_MAX))
    }
}

impl NewTask {
    /// Its job and id.
    pub fn address(&self) -> TaskAddress {
        let (job, id) = (self.job.clone(), self.id);
        TaskAddress { job, id }
    }

    /// What connects it with other tasks; `None` if nothing does.
    pub fn family(&self) -> Option<&Family> {
        self.options.as_ref()?.family.as_deref()
    }
}

impl Task {
    /// Its job and id.
    pub fn address(&self) -> TaskAddress {
        let (job, id) = (self.job.clone(), self.id);
        TaskAddress { job, id }
    }

    /// What connects it with other tasks; `None` if nothing does.
    pub fn family(&self) -> Option<&Family> {
        self.options.as_ref()?.family.as_deref()
    }

    /// Whether other tasks may wait for this one.
    pub fn has_followers(&self) -> bool {
        self.family().is_some_and(|family| family.has_followers)
    }
}
