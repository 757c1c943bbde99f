//! The store seam: jobs, tasks and workers. The store is the only source of truth.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_domain::{
    Event, Job, JobName, NewTask, Rejected, ScheduleName, StateKind, Task, TaskId, TaskRef,
    Timestamp, Token, WorkerId, WriteId,
};

use crate::{
    ChangePage, ChangeQuery, FamilyStore, LanePage, LaneQuery, ListOrder, Metadata, Places,
    QuotaSwap, QuotaWrite, ScheduleStore, Share, TakePlaces,
};

/// Everything a backend stores.
pub trait Store: JobStore + TaskStore + ScheduleStore + WorkerStore + FamilyStore {}

impl<T: JobStore + TaskStore + ScheduleStore + WorkerStore + FamilyStore> Store for T {}

/// Job definitions. They are few, small and read often, so implementations should serve reads from memory.
#[async_trait]
pub trait JobStore: Send + Sync + 'static {
    /// Creates or replaces a definition. The times and the creator of an existing one are kept, see [`Job::keep`].
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError>;

    /// One definition.
    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError>;

    /// All definitions, by name.
    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError>;

    /// Pauses or resumes a job. `NotFound` if the job does not exist.
    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError>;

    /// Deletes a definition and its finished tasks. `InUse` while the job has tasks that are unfinished or owe an effect,
    /// `HasSchedules` while it has schedules, `NotFound` if it does not exist.
    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError>;

    /// Replaces the level of a job's quota, by compare-and-set, so that all consumers of the store share one bucket. A
    /// store may forget a level that was not replaced for a day, and one that a single process owns when it ends.
    async fn swap_quota(&self, swap: QuotaSwap) -> Result<QuotaWrite, StoreError>;

    /// Reserves places for tasks of a job that limits how many of its tasks are enqueued or owned at once. Returns those
    /// that got one, which are the first ones of the call if their lanes are not full: they may be enqueued or claimed. A
    /// place is free again when its task is neither any more, or was not enqueued within [`TakePlaces::LIFETIME`]. A task that has a place gets it again, and tasks
    /// beyond the limit run on when it is lowered.
    ///
    /// A store that several processes write does not count tasks that were enqueued before the job had a limit.
    async fn take_places(&self, take: TakePlaces) -> Result<Places, StoreError>;
}

/// A definition to store.
#[derive(Clone, Debug)]
pub struct PutJob {
    /// The definition. Its `created_*` fields are only used for a new job.
    pub job: Job,
    /// Whether an existing definition is kept and returned.
    pub if_absent: bool,
}

/// Tasks and their transitions.
///
/// * An item whose result is `Ok` is durable, to the degree that the implementation documents.
/// * The items of one call are independent: a failed item does not affect the others. Results are in the order of the
///   items. Several commands for one task are applied in their order.
/// * [`dueline_domain::apply`] decides every move. The store makes the decision and its write atomic per task. No
///   lifecycle rule is expressed in a query or a condition.
/// * If the task's latest write has the write id of a [`Command`], the command has succeeded before. The result is then
///   `Ok` with [`Applied::repeated`], and nothing is written.
/// * The time is an argument; the store has no clock.
#[async_trait]
pub trait TaskStore: Send + Sync + 'static {
    /// Stores new tasks. If the id exists, or the key within the job, [`Task::meet`] decides what becomes of the submit: the
    /// result is the existing task, which the same write may have replaced; [`StoreError::Exists`] or
    /// [`StoreError::KeyHeld`]; or a new task that takes the key over. Of several submits of one key, made at the same time,
    /// one creates the task. `NotFound` if the job does not exist.
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>>;

    /// One task with all its fields, as of the last acknowledged write.
    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError>;

    /// Applies events, each as one atomic compare-and-set on its task.
    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>>;

    /// Tasks whose trigger time has passed, and the next trigger time after `now`. Within each job they are in the order
    /// of priority, and then oldest first. A store without an index by priority orders what it has read of a backlog, and
    /// reads what has become due lately beside the oldest of it. Finished tasks that owe an effect are apart from the
    /// others, oldest first, and have limits of their own. May return a task that has moved since. The trigger event
    /// therefore carries the state and trigger time read here.
    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError>;

    /// Lanes of a job with a fair share: the first due tasks of each one. Tasks that wait in lanes are not returned by
    /// [`TaskStore::due`], except those that were stored before the job had lanes.
    async fn lanes(&self, query: LaneQuery) -> Result<LanePage, StoreError>;

    /// Enqueued tasks of a job in dispatch order: priority, then due time, then submit order. Bounded queues are
    /// refilled from this.
    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError>;

    /// Tasks that any worker, or one worker, owns. A store without an index by owner scans trigger times around `now`
    /// and may miss some behind a long backlog. The leases of missed tasks expire by themselves.
    async fn owned(
        &self,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError>;

    /// Tasks of a job in the order of the query, payloads included, page by page. A cursor of another order is refused. By due
    /// time only tasks are listed that have one, see [`ListOrder::WITH_DUE_TIME`].
    async fn list(&self, query: ListQuery) -> Result<Page, StoreError>;

    /// What has changed among the tasks of a job since a position. Every task that is stored from then on is reported, and its
    /// end; states in between may be left out. A reader that was away for too long gets a gap instead. A write without
    /// a reader costs no more for it. A store that several processes write reads its tasks to find the changes: it says how
    /// late and how completely. `NotFound` if the job does not exist. Cancel safe.
    async fn changes(&self, query: ChangeQuery) -> Result<ChangePage, StoreError>;

    /// The number of tasks of a job in each state.
    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError>;

    /// Deletes up to `limit` finished tasks past their job's retention that owe nothing. Each call scans a bounded part of all tasks;
    /// the next call continues there.
    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError>;
}

/// The result of one call of [`TaskStore::prune`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Tasks deleted.
    pub deleted: usize,
    /// Whether the scan has not reached the end of the tasks; the next call continues it.
    pub more: bool,
}

/// Registered workers. They are stored so that a restart of the server does not lose them.
#[async_trait]
pub trait WorkerStore: Send + Sync + 'static {
    /// Creates or replaces records.
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError>;

    /// All records, by id.
    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError>;

    /// Removes records. A missing record is not an error.
    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError>;
}

/// A process that has registered, by incarnation. Most are executors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    /// Name and incarnation.
    pub id: WorkerId,
    /// `executor`, or another kind of process.
    pub kind: Arc<str>,
    /// Jobs that the worker runs with code of its own.
    pub jobs: Vec<JobName>,
    /// Kinds of built-in handlers that the worker runs for any job.
    pub handlers: Vec<Arc<str>>,
    /// Greatest total weight of the tasks that the worker runs at once.
    pub concurrency: u32,
    /// Whether the worker runs inside the process that owns the store. It is gone when that process is gone.
    pub embedded: bool,
    /// What it says about itself.
    pub metadata: Metadata,
    /// When the worker registered.
    pub started_at: Timestamp,
    /// When the worker last registered or sent a heartbeat.
    pub seen_at: Timestamp,
}

/// A task to store.
#[derive(Clone, Debug)]
pub struct Create {
    /// The submit.
    pub task: NewTask,
    /// Token for a task that is created as enqueued.
    pub token: Token,
    /// Name of the write.
    pub write: WriteId,
    /// Whether a due task is created as enqueued if its job allows that. The caller then sends its message.
    pub may_enqueue: bool,
    /// A worker reserved for this task. A task that would be created as enqueued is created as claimed by this worker,
    /// in the same write.
    pub claim_for: Option<WorkerId>,
}

/// A stored task.
#[derive(Clone, Debug)]
pub struct Created {
    /// The task.
    pub task: Box<Task>,
    /// Whether an earlier submit created the task.
    pub existed: bool,
    /// Whether this submit has replaced the content of that task.
    pub replaced: bool,
}

impl Created {
    /// Whether the call has changed the task.
    pub const fn is_written(&self) -> bool {
        !self.existed || self.replaced
    }
}

/// An event for one task.
#[derive(Clone, Debug)]
pub struct Command {
    /// The task's job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// The event.
    pub event: Event,
    /// Name of the write; the same for every repetition of this command.
    pub write: WriteId,
}

/// A task after its event.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The task after the event. After a trigger it may lack a payload, checkpoint and result that the store keeps apart
    /// from the task: they are not read only to enqueue it, and an absent one is empty.
    pub task: Box<Task>,
    /// Whether the same command had succeeded before.
    pub repeated: bool,
}

/// Which due tasks to read.
#[derive(Clone, Debug)]
pub struct DueQuery {
    /// Trigger times up to this have passed.
    pub now: Timestamp,
    /// Most tasks to return per job.
    pub limit_per_job: usize,
    /// Lower limits for the unowned tasks of some jobs; zero for a paused job. Owned tasks are returned all the same,
    /// because a lost worker must be noticed.
    pub pending_limits: BTreeMap<JobName, usize>,
    /// Most tasks to return per job that owe an effect.
    pub owed_limit: usize,
    /// Lower limits for some jobs; zero for a job whose sink is down.
    pub owed_limits: BTreeMap<JobName, usize>,
    /// The shards to read; `None` for all of them.
    pub share: Option<Share>,
}

impl DueQuery {
    /// The most tasks of a job to return that owe an effect.
    pub fn owed_limit_of(&self, job: &JobName) -> usize {
        let limit = self.owed_limits.get(job).copied();
        limit.map_or(self.owed_limit, |limit| limit.min(self.owed_limit))
    }
}

/// Due tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DuePage {
    /// The unfinished tasks. The order of the jobs is not specified. The tasks of a job are sorted by priority and
    /// trigger time, with those that are enqueued or wait for other tasks after all others: the messages of the enqueued
    /// ones are late or lost, the waiting ones are only checked, and a backlog of either must not hide tasks that need
    /// this scan. A store that looks for the others behind a backlog may give up after some thousands of tasks.
    pub tasks: Vec<DueTask>,
    /// The finished tasks that owe an effect.
    pub owed: Vec<DueTask>,
    /// Whether more unfinished tasks are due than the limits allowed. A limit of zero does not count.
    pub more: bool,
    /// The earliest trigger time that has not passed.
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
    /// The task that was the last to take this idempotency key. The first page shows it, however many newer tasks the job
    /// has.
    pub key: Option<Arc<str>>,
    /// First due at or after this.
    pub due_from: Option<Timestamp>,
    /// First due before this.
    pub due_before: Option<Timestamp>,
    /// Created by this schedule.
    pub schedule: Option<ScheduleName>,
    /// In this order.
    pub order: ListOrder,
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
            schedule: None,
            order: ListOrder::Newest,
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

/// Statistics of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStats {
    /// Tasks by state. States without tasks are left out.
    pub by_state: BTreeMap<StateKind, u64>,
    /// The earliest trigger time of an unowned task.
    pub oldest_due_at: Option<Timestamp>,
    /// Whether not all tasks were counted. The numbers of finished tasks are then too low.
    pub partial: bool,
    /// Age of the counts. Counting many tasks is expensive in some stores, so an implementation may cache them.
    pub age: Duration,
}

/// An error of a store. The variants differ in what the caller can do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The job or task does not exist.
    #[error("{what} '{name}' does not exist")]
    NotFound {
        /// `job`, `task` or `schedule`.
        what: &'static str,
        /// Its name or id.
        name: Arc<str>,
    },
    /// The event is not legal in the task's present state.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// Another submit has used the id or key.
    #[error("task {0} already exists with different content")]
    Exists(TaskId),
    /// A task holds the key of the submit, which asked not to be stored then.
    #[error("the key is held by task {holder}, which is {state}")]
    KeyHeld {
        /// The task.
        holder: TaskId,
        /// Its state.
        state: StateKind,
    },
    /// The job has tasks that are unfinished or owe an effect.
    #[error("job '{job}' has {unfinished} unfinished or undelivered tasks")]
    InUse {
        /// The job.
        job: JobName,
        /// Number of these tasks.
        unfinished: u64,
    },
    /// The job has schedules, which would create tasks.
    #[error("job '{0}' has schedules")]
    HasSchedules(JobName),
    /// Too much is watched at once.
    #[error("too many {what} are watched; at most {max} are possible")]
    TooManyWatched {
        /// Of what.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The call is not valid, and would fail again.
    #[error("{0}")]
    Invalid(Arc<str>),
    /// Too many calls; try again later.
    #[error("store is throttled")]
    Throttled,
    /// The store has no room for writes; reads still work.
    #[error("store is full: {0}")]
    Full(Arc<str>),
    /// The store cannot be reached or is shutting down.
    #[error("store is unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: Arc<str>,
        /// Whether the write may have happened nevertheless.
        outcome_unknown: bool,
    },
    /// Stored data cannot be decoded.
    #[error("store is corrupt: {0}")]
    Corrupt(Arc<str>),
}

impl StoreError {
    /// The job does not exist.
    pub fn no_job(name: &JobName) -> Self {
        let (what, name) = ("job", Arc::from(name.as_str()));
        Self::NotFound { what, name }
    }

    /// The task does not exist.
    pub fn no_task(id: &TaskId) -> Self {
        let (what, name) = ("task", Arc::from(id.to_string()));
        Self::NotFound { what, name }
    }

    /// The schedule does not exist.
    pub fn no_schedule(name: &ScheduleName) -> Self {
        let (what, name) = ("schedule", Arc::from(name.as_str()));
        Self::NotFound { what, name }
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Throttled | Self::Full(_) | Self::Unavailable { .. }
        )
    }

    /// Whether the write may have happened despite the error. Repeat the call with the same write id to find out.
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
