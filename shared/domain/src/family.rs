//! Families: tasks that wait for other tasks.

use std::{fmt, time::Duration};

use crate::{JobName, NewTask, StateKind, Task, TaskId, Timestamp, Token};

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
    /// A run succeeded, but not all of its children did, and it asks for that.
    ChildrenFailed,
    /// The run that had submitted it did not succeed, so that it was discarded.
    Discarded,
}

impl TaskEnd {
    /// All ends.
    pub const ALL: [Self; 8] = [
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Trashed,
        Self::Dropped,
        Self::Deleted,
        Self::ChildrenFailed,
        Self::Discarded,
    ];

    /// The end of a task in a final state, whatever becomes of its children.
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
            Self::ChildrenFailed => "children_failed",
            Self::Discarded => "discarded",
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
            Self::ChildrenFailed => "succeeded, but not all of its children did",
            Self::Discarded => "was discarded with the run that had submitted it",
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

    /// Whether a predecessor that ended like this lets the task go on. What happened to a deleted one is unknown, and a
    /// discarded one never existed for good, so these satisfy only a rule that asks for nothing.
    pub const fn accepts(self, end: TaskEnd) -> bool {
        match self {
            Self::Success => matches!(end, TaskEnd::Succeeded),
            Self::Failure => !matches!(
                end,
                TaskEnd::Succeeded | TaskEnd::Deleted | TaskEnd::Discarded
            ),
            Self::Always => true,
        }
    }
}

/// Why one task waits for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// It is a follower: it waits for the end of a task and of all that task's children.
    Follower,
    /// It is a child: it waits for the end of its parent's own run.
    Child,
    /// It is staged: it was submitted from inside a run, and waits for the success of that run.
    Staged,
}

/// What is known of the children of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Children {
    /// It never had one.
    #[default]
    None,
    /// It has children, of which some may not have ended.
    Open,
    /// Its own run is over, and none of its children seemed to be open at some time after this was stored.
    Closing,
    /// All of its children have ended. Later ones do not count.
    Closed,
}

impl Children {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Open, Self::Closing, Self::Closed];

    /// The name on the wire and in stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Closed => "closed",
        }
    }

    /// The value of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|children| children.name() == name)
    }

    /// Whether some of the children may not have ended.
    pub const fn are_open(self) -> bool {
        matches!(self, Self::Open | Self::Closing)
    }
}

/// A task that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// The task.
    pub task: TaskAddress,
    /// How it ended, once the task that waits has been notified.
    pub end: Option<TaskEnd>,
}

impl Predecessor {
    /// A predecessor that is not known to have ended.
    pub const fn open(task: TaskAddress) -> Self {
        Self { task, end: None }
    }
}

/// The run from inside which a task was submitted. Until that run has ended the task is staged; then it goes on, or is
/// discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromRun {
    /// The task that ran.
    pub task: TaskAddress,
    /// The token of the run.
    pub token: Token,
    /// How the run ended, once this task has been notified: [`TaskEnd::Succeeded`] or [`TaskEnd::Discarded`].
    pub end: Option<TaskEnd>,
}

/// What is known of a run, for the tasks that it has staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFate {
    /// It may still succeed.
    Open,
    /// It has succeeded.
    Succeeded,
    /// It has ended otherwise, and will never succeed.
    Over,
}

/// What connects a task with other tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// The parent. It has an end once its own run is over and this task has been notified.
    pub parent: Option<Predecessor>,
    /// The tasks that this one waits for. Those without an end are the set of what it still waits for.
    pub after: Vec<Predecessor>,
    /// Which of their ends let it go on.
    pub trigger_on: TriggerOn,
    /// Whether other tasks may wait for this one, so that they have to be notified of its end. Set by the first of them,
    /// while this task has not ended.
    pub has_followers: bool,
    /// What is known of the children.
    pub children: Children,
    /// How many of the children did not succeed; known once they are closed.
    pub children_failed: u32,
    /// Whether a child that does not succeed makes the family one that has not succeeded, for the followers.
    pub fail_on_child: bool,
    /// How many parents are above the task.
    pub depth: u32,
    /// The run from inside which the task was submitted.
    pub from_run: Option<FromRun>,
    /// The run that has last staged tasks; of a task that has succeeded, the run that did. Only a service may know it.
    pub staged: Option<Token>,
    /// How many children have not ended. Not stored: the frontend counts them when it shows the task.
    pub open_children: Option<u32>,
}

impl Family {
    /// When a task that waits is first checked.
    pub const CHECK_FIRST: Duration = Duration::from_secs(60);
    /// Longest time between two checks of a task that waits.
    pub const CHECK_MAX: Duration = Duration::from_secs(900);

    /// What the task waits for and does not know to have ended: first its parent, then its predecessors.
    pub fn open(&self) -> impl Iterator<Item = (EdgeKind, &TaskAddress)> {
        let parent = self.parent.iter().map(|one| (EdgeKind::Child, one));
        let after = self.after.iter().map(|one| (EdgeKind::Follower, one));
        let all = parent.chain(after);
        let open = all.filter(|(_, one)| one.end.is_none());
        open.map(|(kind, one)| (kind, &one.task))
    }

    /// What the task waits for, of one kind.
    pub(crate) fn waits_for(&mut self, kind: EdgeKind) -> &mut [Predecessor] {
        match kind {
            EdgeKind::Follower => &mut self.after,
            EdgeKind::Child => self.parent.as_mut_slice(),
            // The end of a run is recorded with the run.
            EdgeKind::Staged => &mut [],
        }
    }

    /// The run from inside which the task was submitted, if the task does not know how that ended.
    pub fn open_run(&self) -> Option<&FromRun> {
        self.from_run.as_ref().filter(|run| run.end.is_none())
    }

    /// Whether the task still waits for another one, or for the run that has submitted it.
    pub fn is_open(&self) -> bool {
        self.open().next().is_some() || self.open_run().is_some()
    }

    /// Whether one of the ends that the task knows has cancelled it.
    pub(crate) fn is_refused(&self) -> bool {
        let is_discarded = |run: &FromRun| run.end == Some(TaskEnd::Discarded);
        let refuses = |kind, one: &Predecessor| {
            one.end
                .is_some_and(|end| self.refusal(kind, &one.task, end).is_some())
        };
        self.from_run.as_ref().is_some_and(is_discarded)
            || self.parent.iter().any(|one| refuses(EdgeKind::Child, one))
            || self
                .after
                .iter()
                .any(|one| refuses(EdgeKind::Follower, one))
    }

    /// Why a task that ended like this does not let the one that waits for it go on; `None` if it does. A parent must
    /// succeed, whatever the rule for predecessors.
    pub fn refusal(&self, kind: EdgeKind, task: &TaskAddress, end: TaskEnd) -> Option<String> {
        let (rule, word) = match kind {
            EdgeKind::Follower => (self.trigger_on, "predecessor"),
            EdgeKind::Child => (TriggerOn::Success, "parent"),
            EdgeKind::Staged => (TriggerOn::Success, "run of"),
        };
        (!rule.accepts(end)).then(|| format!("{word} {task} {}", end.words()))
    }

    /// Whether two submits ask for the same.
    pub(crate) fn matches_submit(&self, submit: &Self) -> bool {
        // Once its run has succeeded, a staged task is like any other.
        let same_run = match &self.from_run {
            Some(stored) if stored.end != Some(TaskEnd::Succeeded) => {
                let run = submit.from_run.as_ref();
                run.is_some_and(|run| run.task == stored.task && run.token == stored.token)
            }
            _ => true,
        };
        same_run && self.matches_content(submit)
    }

    /// Whether two submits ask for the same, from inside whichever run.
    pub(crate) fn matches_content(&self, submit: &Self) -> bool {
        // Destructured without `..`, so that a new field does not compile before it is compared or listed here.
        let Self {
            parent,
            after,
            trigger_on,
            fail_on_child,
            // Compared by the caller, if it counts.
            from_run: _,
            // The predecessors and followers of the stored task have moved on since.
            has_followers: _,
            children: _,
            children_failed: _,
            depth: _,
            staged: _,
            open_children: _,
        } = submit;
        let parent_of = |parent: &Option<Predecessor>| parent.as_ref().map(|one| one.task.clone());
        let same = |(one, other): (&Predecessor, &Predecessor)| one.task == other.task;
        self.trigger_on == *trigger_on
            && self.fail_on_child == *fail_on_child
            && parent_of(&self.parent) == parent_of(parent)
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

    /// What is known of its children.
    pub fn children(&self) -> Children {
        self.family()
            .map_or(Children::None, |family| family.children)
    }

    /// Whether the task has succeeded and some of its children may not have ended.
    pub fn is_open_family(&self) -> bool {
        self.kind() == StateKind::Succeeded && self.children().are_open()
    }

    /// How the task and all its children have ended, as its followers see it; `None` as long as one of them has not.
    pub fn family_end(&self) -> Option<TaskEnd> {
        let end = TaskEnd::of(self.kind())?;
        let run = self.family().and_then(|family| family.from_run.as_ref());
        let is_discarded = run.is_some_and(|run| run.end == Some(TaskEnd::Discarded));
        let failed = |family: &Family| family.fail_on_child && family.children_failed > 0;
        match end {
            TaskEnd::Cancelled if is_discarded => Some(TaskEnd::Discarded),
            TaskEnd::Succeeded if self.children().are_open() => None,
            TaskEnd::Succeeded if self.family().is_some_and(failed) => {
                Some(TaskEnd::ChildrenFailed)
            }
            end => Some(end),
        }
    }

    /// Whether the task was cancelled because the other one, which it waited for, ended as it did.
    pub fn was_cancelled_by(&self, kind: EdgeKind, from: &TaskAddress) -> bool {
        let family = self
            .family()
            .filter(|_| self.kind() == StateKind::Cancelled);
        let Some(family) = family else {
            return false;
        };
        let mut waited_for = match kind {
            EdgeKind::Follower => family.after.iter(),
            EdgeKind::Child => family.parent.as_slice().iter(),
            EdgeKind::Staged => return false,
        };
        let end = waited_for.find_map(|one| one.end.filter(|_| one.task == *from));
        end.is_some_and(|end| family.refusal(kind, from, end).is_some())
    }

    /// Whether one of its runs has staged tasks.
    pub fn has_staged(&self) -> bool {
        self.family().is_some_and(|family| family.staged.is_some())
    }

    /// Whether a run that has staged tasks may have ended without success, and the task itself has not ended.
    pub fn may_discard(&self) -> bool {
        self.has_staged() && self.kind().is_pending()
    }

    /// What is known of a run of this task. A run that is over, or has succeeded, stays so.
    pub fn run_fate(&self, run: Token) -> RunFate {
        let staged = self.family().and_then(|family| family.staged);
        match self.state.token() {
            Some(token) if token == run => RunFate::Open,
            None if self.kind() == StateKind::Succeeded && staged == Some(run) => {
                RunFate::Succeeded
            }
            _ => RunFate::Over,
        }
    }

    /// Whether `submit`, from inside a later run of the task that had submitted this one, stands for this task. Its time,
    /// urgency and payload may differ.
    pub fn is_submitted_again(&self, submit: &NewTask) -> bool {
        let (stored, again) = (self.family(), submit.family());
        let (Some(stored), Some(again)) = (stored, again) else {
            return false;
        };
        let (Some(run), Some(next)) = (&stored.from_run, &again.from_run) else {
            return false;
        };
        let Some(options) = self.options.as_deref() else {
            return false;
        };
        let mut plain = submit.options.clone().unwrap_or_default();
        plain.family = options.family.clone();
        run.end != Some(TaskEnd::Succeeded)
            && (&run.task, self.job == submit.job) == (&next.task, true)
            && stored.matches_content(again)
            && options.matches_submit(&plain)
    }

    /// Whether other tasks may wait for this one.
    pub fn has_followers(&self) -> bool {
        self.family().is_some_and(|family| family.has_followers)
    }
}
