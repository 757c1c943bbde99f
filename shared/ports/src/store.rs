//! The store seam: the only truth about jobs, tasks and workers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_domain::{
    Event, Job, JobName, NewTask, Rejected, StateKind, Task, TaskId, TaskRef, Timestamp, Token,
    WorkerId, WriteId,
};

use crate::Share;

/// Everything a backend stores.
pub trait Store: JobStore + TaskStore + WorkerStore {}

impl<T: JobStore + TaskStore + WorkerStore> Store for T {}

/// Job definitions. Few, small, read often: implementations answer reads from memory where they can.
#[async_trait]
pub trait JobStore: Send + Sync + 'static {
    /// Creates or replaces a definition. The times and the creator of an existing one are kept.
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError>;

    /// One definition.
    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError>;

    /// All definitions, by name.
    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError>;

    /// Pauses or resumes a job. `NotFound` when there is no such job.
    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError>;

    /// Deletes a definition and its finished tasks. `InUse` while it has unfinished tasks; `NotFound` when there is
    /// no such job.
    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError>;
}

/// A definition to store.
#[derive(Clone, Debug)]
pub struct PutJob {
    /// The definition; `created_*` hold only if it is new.
    pub job: Job,
    /// Whether an existing definition is left alone: the call then answers the existing one.
    pub if_absent: bool,
}

/// Tasks and their transitions.
///
/// * A call that answers `Ok` for an item has made it durable, by the implementation's documented setting.
/// * Items of one call are independent: one that fails does not touch the others. Answers are in the order of items;
///   several commands for one task happen in their order.
/// * Every move is decided by [`dueline_domain::apply`]; the store only makes the decision and the write one atomic
///   step per task. No rule of the lifecycle lives in a query or a condition.
/// * A [`Command`] whose write id the task already carries has succeeded before: the answer is `Ok` with
///   [`Applied::repeated`], and nothing is written.
/// * Time comes in; the store has no clock.
#[async_trait]
pub trait TaskStore: Send + Sync + 'static {
    /// Stores new tasks. A submit whose id (or key, within its job) exists answers the existing task when it is the
    /// same submit ([`Task::is_made_by`]) and [`StoreError::Exists`] otherwise. `NotFound` when the job is unknown.
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>>;

    /// One task with everything known about it, as of the last acknowledged write.
    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError>;

    /// Applies events, each as one atomic compare-and-set on its task.
    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>>;

    /// Tasks whose trigger time has passed, oldest first within each job, and the next trigger time to come. May
    /// show a task that has moved since: the command that follows carries what was seen.
    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError>;

    /// Enqueued tasks of a job in the order they should be handed out: priority, then due time, then submit order.
    /// A bounded queue is refilled from this.
    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError>;

    /// Tasks that a worker owns, all or those of one worker. Where nothing lists them by owner they are looked for around
    /// `now`, and behind a long queue some may be missed: their leases end by themselves.
    async fn owned(
        &self,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError>;

    /// Tasks of a job, newest first, payloads included, page by page.
    async fn list(&self, query: ListQuery) -> Result<Page, StoreError>;

    /// How many tasks of a job are in each state.
    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError>;

    /// Deletes up to `limit` finished tasks that outlived their job's retention, on a bounded stretch of a walk over
    /// all tasks that goes on at the next call.
    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError>;
}

/// A stretch of the pruner's walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Tasks deleted.
    pub deleted: usize,
    /// Whether the walk has not come to the end of the tasks; the next call goes on.
    pub more: bool,
}

/// Workers that registered, so that they outlive a restart of the server.
#[async_trait]
pub trait WorkerStore: Send + Sync + 'static {
    /// Creates or replaces records.
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError>;

    /// All records, by id.
    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError>;

    /// Removes records; missing ones are fine.
    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError>;
}

/// A worker process, by incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    /// Name and incarnation.
    pub id: WorkerId,
    /// `executor`, or another kind of process.
    pub kind: Arc<str>,
    /// Jobs it runs with code of its own.
    pub jobs: Vec<JobName>,
    /// Kinds of handlers it runs for any job.
    pub handlers: Vec<Arc<str>>,
    /// Most weight it runs at once.
    pub concurrency: u32,
    /// Whether it lives inside the process that owns the store: when that process is gone, so is this worker.
    pub embedded: bool,
    /// When it registered.
    pub started_at: Timestamp,
    /// When it was last heard of.
    pub seen_at: Timestamp,
}

/// A task to store.
#[derive(Clone, Debug)]
pub struct Create {
    /// The submit.
    pub task: NewTask,
    /// Token, for a task that is born enqueued.
    pub token: Token,
    /// Name of the write.
    pub write: WriteId,
    /// Whether a due task may be born enqueued (the caller will send its message) if its job lets it.
    pub hand_on: bool,
    /// A worker that waits for just this task: instead of enqueued it is born claimed, in the same write.
    pub claim_for: Option<WorkerId>,
}

/// A stored task.
#[derive(Clone, Debug)]
pub struct Created {
    /// The task.
    pub task: Box<Task>,
    /// Whether an earlier submit had made it.
    pub existed: bool,
}

/// An event for one task.
#[derive(Clone, Debug)]
pub struct Command {
    /// The task's job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// What happens.
    pub event: Event,
    /// Name of the write; the same for every repetition of this command.
    pub write: WriteId,
}

/// A task after its event.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The task as it is now.
    pub task: Box<Task>,
    /// Whether this very command had succeeded before.
    pub repeated: bool,
}

/// What to look for.
#[derive(Clone, Debug)]
pub struct DueQuery {
    /// Trigger times up to this have passed.
    pub now: Timestamp,
    /// Most tasks to answer per job.
    pub limit_per_job: usize,
    /// Jobs of which fewer unowned tasks are wanted: zero for a paused job. Tasks that a worker owns are answered
    /// all the same, because a lost worker must be noticed.
    pub pending_limits: BTreeMap<JobName, usize>,
    /// The partitions to look at; `None` for all of them.
    pub share: Option<Share>,
}

/// Due tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DuePage {
    /// The tasks, jobs interleaved in no particular order.
    pub tasks: Vec<DueTask>,
    /// Whether more were due than the limits let through, limits of zero aside.
    pub more: bool,
    /// The earliest trigger time still to come.
    pub next_at: Option<Timestamp>,
}

/// A task whose trigger time has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTask {
    /// Its job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// Its state.
    pub kind: StateKind,
    /// Its trigger time.
    pub trigger_at: Timestamp,
}

/// A task that a worker owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedTask {
    /// Its job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// Its state: claimed or processing.
    pub kind: StateKind,
    /// The token of the claim.
    pub token: Token,
    /// The owner.
    pub worker: WorkerId,
}

/// Which tasks to list.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Of this job.
    pub job: JobName,
    /// In one of these states; empty means all.
    pub states: Vec<StateKind>,
    /// With this tag.
    pub tag: Option<Arc<str>>,
    /// With this name.
    pub name: Option<Arc<str>>,
    /// With this idempotency key.
    pub key: Option<Arc<str>>,
    /// First due at or after this.
    pub due_from: Option<Timestamp>,
    /// First due before this.
    pub due_before: Option<Timestamp>,
    /// Where the previous page ended.
    pub cursor: Option<Arc<str>>,
    /// Most tasks on the page.
    pub limit: usize,
}

impl ListQuery {
    /// All tasks of a job, a hundred a page.
    pub const fn of(job: JobName) -> Self {
        Self {
            job,
            states: Vec::new(),
            tag: None,
            name: None,
            key: None,
            due_from: None,
            due_before: None,
            cursor: None,
            limit: 100,
        }
    }
}

/// A page of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Arc<str>>,
}

/// Numbers about a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStats {
    /// Tasks by state; states without any are left out.
    pub by_state: BTreeMap<StateKind, u64>,
    /// The earliest trigger time of an unowned task.
    pub oldest_due_at: Option<Timestamp>,
    /// Whether there are more tasks than were counted: finished ones are then told too low.
    pub partial: bool,
    /// How long ago they were counted: counting many tasks is dear in some stores, so an answer may be kept for a while.
    pub age: Duration,
}

/// What went wrong with a store, by what the caller can do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such thing.
    #[error("{what} '{name}' does not exist")]
    NotFound {
        /// Kind of thing: `job` or `task`.
        what: &'static str,
        /// Its name.
        name: Arc<str>,
    },
    /// The move is not legal in the task's present state.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The id or key is taken by another submit.
    #[error("task {0} exists already with other content")]
    Exists(TaskId),
    /// The job has unfinished tasks.
    #[error("job '{job}' has {unfinished} unfinished tasks")]
    InUse {
        /// The job.
        job: JobName,
        /// How many.
        unfinished: u64,
    },
    /// The call itself is wrong and will never work.
    #[error("{0}")]
    Invalid(Arc<str>),
    /// Too many calls; try again later.
    #[error("store is throttled")]
    Throttled,
    /// The store has no room for writes; reads go on.
    #[error("store is full: {0}")]
    Full(Arc<str>),
    /// The store cannot be reached or is shutting down.
    #[error("store is unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: Arc<str>,
        /// Whether the write may have happened all the same.
        outcome_unknown: bool,
    },
    /// Stored data make no sense.
    #[error("store is corrupt: {0}")]
    Corrupt(Arc<str>),
}

impl StoreError {
    /// No such job.
    pub fn no_job(name: &JobName) -> Self {
        let (what, name) = ("job", Arc::from(name.as_str()));
        Self::NotFound { what, name }
    }

    /// No such task.
    pub fn no_task(id: &TaskId) -> Self {
        let (what, name) = ("task", Arc::from(id.to_string()));
        Self::NotFound { what, name }
    }

    /// Whether the same call may work later.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Throttled | Self::Full(_) | Self::Unavailable { .. }
        )
    }

    /// Whether the write may have happened although an error came back. Repeating it with the same write id tells.
    pub const fn outcome_unknown(&self) -> bool {
        matches!(
            self,
            Self::Unavailable {
                outcome_unknown: true,
                ..
            }
        )
    }
}
