//! The store: what it holds, and its seams.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dueline_domain::{Job, JobName, Task, TaskId, TaskRef, Timestamp, WorkerId};
use dueline_ports::{
    Applied, Command, Create, Created, DuePage, DueQuery, JobStats, JobStore, ListQuery, OwnedTask,
    Page, Pruned, PutJob, StoreError, TaskStore, WorkerRecord, WorkerStore,
};

use crate::{
    apply::Lanes,
    cache::Written,
    calls::Table,
    create::Places,
    due::Watch,
    jobs::{Jobs, Rates},
    open::DynamoOptions,
    prune::Walk,
    stats::Counted,
};

/// Calls side by side for one call of the store.
pub(crate) const BUSY: usize = 32;

/// The task store on one DynamoDB table.
///
/// Any number of processes may use one table. Dropping the store closes nothing that others share.
#[derive(Debug)]
pub struct DynamoStore {
    pub(crate) inner: Inner,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) table: Table,
    pub(crate) slots: u16,
    pub(crate) options: DynamoOptions,
    pub(crate) jobs: Jobs,
    pub(crate) rates: Rates,
    pub(crate) places: Places,
    pub(crate) written: Written,
    pub(crate) lanes: Lanes,
    pub(crate) watch: Watch,
    pub(crate) walk: tokio::sync::Mutex<Walk>,
    pub(crate) counted: Mutex<Counted>,
}

impl Inner {
    pub(crate) fn new(table: Table, slots: u16, options: DynamoOptions) -> Self {
        let jobs = Jobs::new(options.definitions_ttl);
        Self {
            table,
            slots,
            options,
            jobs,
            rates: Rates::default(),
            places: Places::default(),
            written: Written::default(),
            lanes: Lanes::default(),
            watch: Watch::default(),
            walk: tokio::sync::Mutex::default(),
            counted: Mutex::default(),
        }
    }
}

impl DynamoStore {
    /// The name of the table.
    pub fn table(&self) -> &str {
        &self.inner.table.name
    }

    /// What the calls cost so far.
    pub const fn meter(&self) -> &dueline_aws::Meter {
        &self.inner.table.meter
    }

    /// Whether DynamoDB answers, and the latest changes of that.
    pub const fn connection(&self) -> &dueline_aws::Connection {
        &self.inner.table.connection
    }

    /// What it was opened with.
    pub const fn options(&self) -> &DynamoOptions {
        &self.inner.options
    }

    /// Partitions over which the tasks of each job are spread.
    pub const fn slots(&self) -> u16 {
        self.inner.slots
    }
}

#[async_trait]
impl JobStore for DynamoStore {
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        self.inner.put_job(put).await
    }

    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        self.inner.job(name).await
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        self.inner.all_jobs().await
    }

    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError> {
        self.inner.pause_job(name, paused, now).await
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        self.inner.delete_job(name).await
    }
}

#[async_trait]
impl TaskStore for DynamoStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        self.inner.create(now, new).await
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        self.inner.get(job, id).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        self.inner.apply(now, commands).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        self.inner.due(query).await
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        self.inner.ready(job, limit).await
    }

    async fn owned(
        &self,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        self.inner.owned(now, worker).await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        self.inner.list(query).await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        self.inner.stats(job).await
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        self.inner.prune(now, limit).await
    }
}

#[async_trait]
impl WorkerStore for DynamoStore {
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        self.inner.put_workers(workers).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.inner.workers().await
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        self.inner.remove_workers(ids).await
    }
}
