//! The store: its state, and the traits that it implements.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dueline_domain::{
    Job, JobName, Schedule, ScheduleName, Task, TaskAddress, TaskEnd, TaskId, TaskRef, Timestamp,
    WorkerId,
};
use dueline_ports::{
    Applied, ChangePage, ChangeQuery, Command, Create, Created, DuePage, DueQuery,
    DueSchedulesPage, DueSchedulesQuery, Edge, EdgePage, EdgeQuery, FamilyStore, JobStats,
    JobStore, LanePage, LaneQuery, ListQuery, OwnedTask, Page, Places, Pruned, PutJob, PutSchedule,
    QuotaSwap, QuotaWrite, ScheduleQuery, ScheduleStore, StoreError, TakePlaces, TaskStore,
    WorkerRecord, WorkerStore,
};

use crate::{
    apply::TaskLocks,
    cache::RowCache,
    calls::MeteredTable,
    changes::ChangeReads,
    create::SubmitNumbers,
    due::{DueMemory, LaneMemory},
    jobs::{JobCache, SubmitRates},
    open::DynamoOptions,
    prune::PruneCursor,
    stats::StatsCache,
};

/// Most concurrent calls of DynamoDB for one call of the store.
pub(crate) const CONCURRENT_CALLS: usize = 32;

/// The task store on one DynamoDB table.
///
/// Any number of processes may use one table. Dropping the store does not affect other stores or the client.
#[derive(Debug)]
pub struct DynamoStore {
    pub(crate) table: MeteredTable,
    pub(crate) slots: u16,
    pub(crate) options: DynamoOptions,
    pub(crate) job_cache: JobCache,
    pub(crate) submit_rates: SubmitRates,
    pub(crate) submit_numbers: SubmitNumbers,
    pub(crate) row_cache: RowCache,
    pub(crate) task_locks: TaskLocks,
    pub(crate) due_memory: DueMemory,
    pub(crate) lane_memory: LaneMemory,
    pub(crate) prune_cursor: tokio::sync::Mutex<PruneCursor>,
    pub(crate) stats_cache: Mutex<StatsCache>,
    pub(crate) change_reads: ChangeReads,
}

impl DynamoStore {
    /// A store on a table that was checked.
    pub(crate) fn new(table: MeteredTable, slots: u16, options: DynamoOptions) -> Self {
        let job_cache = JobCache::new(options.definitions_ttl);
        Self {
            table,
            slots,
            options,
            job_cache,
            submit_rates: SubmitRates::default(),
            submit_numbers: SubmitNumbers::default(),
            row_cache: RowCache::default(),
            task_locks: TaskLocks::default(),
            due_memory: DueMemory::default(),
            lane_memory: LaneMemory::default(),
            prune_cursor: tokio::sync::Mutex::default(),
            stats_cache: Mutex::default(),
            change_reads: ChangeReads::default(),
        }
    }

    /// The name of the table.
    pub fn table(&self) -> &str {
        &self.table.name
    }

    /// The meter of the calls' costs.
    pub const fn meter(&self) -> &dueline_aws::Meter {
        &self.table.meter
    }

    /// Whether DynamoDB answers, and since when.
    pub const fn connection(&self) -> &dueline_aws::Connection {
        &self.table.connection
    }

    /// The options that the store was opened with.
    pub const fn options(&self) -> &DynamoOptions {
        &self.options
    }

    /// Partitions over which the tasks of each job are spread.
    pub const fn slots(&self) -> u16 {
        self.slots
    }
}

// A method of a trait calls the inherent method of the verb, which is in the file of the verb. An inherent method takes
// precedence over one of a trait, so equal names do not recurse.

#[async_trait]
impl JobStore for DynamoStore {
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        self.put_job(put).await
    }

    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        self.job(name).await
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        self.all_jobs().await
    }

    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError> {
        self.pause_job(name, paused, now).await
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        self.delete_job(name).await
    }

    async fn swap_quota(&self, swap: QuotaSwap) -> Result<QuotaWrite, StoreError> {
        self.swap_quota(swap).await
    }

    async fn take_places(&self, take: TakePlaces) -> Result<Places, StoreError> {
        self.take_places(take).await
    }
}

#[async_trait]
impl TaskStore for DynamoStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        self.create(now, new).await
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        self.get(job, id).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        self.apply(now, commands).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        self.due(query).await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<LanePage, StoreError> {
        self.lanes(query).await
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        self.ready(job, limit).await
    }

    async fn owned(
        &self,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        self.owned(now, worker).await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        self.list(query).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<ChangePage, StoreError> {
        self.changes(query).await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        self.stats(job).await
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        self.prune(now, limit).await
    }
}

#[async_trait]
impl ScheduleStore for DynamoStore {
    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        self.put_schedules(puts).await
    }

    async fn schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<Option<Schedule>, StoreError> {
        self.schedule(job, name).await
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>, StoreError> {
        self.schedules(query).await
    }

    async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        self.due_schedules(query).await
    }

    async fn delete_schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<bool, StoreError> {
        self.delete_schedule(job, name).await
    }
}

#[async_trait]
impl WorkerStore for DynamoStore {
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        self.put_workers(workers).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.workers().await
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        self.remove_workers(ids).await
    }
}

#[async_trait]
impl FamilyStore for DynamoStore {
    async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError> {
        self.put_edges(edges).await
    }

    async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError> {
        self.edges(query).await
    }

    async fn end_edge(&self, edge: Edge, end: TaskEnd) -> Result<(), StoreError> {
        self.end_edge(edge, end).await
    }

    async fn reopen_edge(&self, edge: Edge) -> Result<(), StoreError> {
        self.reopen_edge(edge).await
    }

    async fn open_children(
        &self,
        parent: &TaskAddress,
        limit: usize,
    ) -> Result<Vec<TaskAddress>, StoreError> {
        self.open_children(parent, limit).await
    }
}
