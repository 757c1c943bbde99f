//! A store whose writes are counted.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dueline_domain::{Job, JobName, Task, TaskId, TaskRef, Timestamp, Verb, WorkerId};
use dueline_ports::{
    Applied, Command, Create, Created, DuePage, DueQuery, JobStats, JobStore, ListQuery, OwnedTask,
    Page, Pruned, PutJob, StoreError, TaskStore, WorkerRecord, WorkerStore, fakes::MemoryStore,
};

/// Counts what each task costs.
#[derive(Debug, Default)]
pub(crate) struct CountingStore {
    inner: Arc<MemoryStore>,
    commands: Mutex<Vec<Verb>>,
    creates: Mutex<usize>,
    is_away: Mutex<bool>,
}

impl CountingStore {
    /// Counts what `inner` is asked for from now on.
    pub(crate) fn new(inner: Arc<MemoryStore>) -> Self {
        Self {
            inner,
            ..Self::default()
        }
    }

    /// The commands since this was asked last.
    pub(crate) fn commands(&self) -> Vec<Verb> {
        std::mem::take(&mut self.commands.lock().unwrap())
    }

    /// The tasks created since this was asked last.
    pub(crate) fn creates(&self) -> usize {
        std::mem::take(&mut self.creates.lock().unwrap())
    }

    /// Whether every command fails.
    pub(crate) fn set_away(&self, is_away: bool) {
        *self.is_away.lock().unwrap() = is_away;
    }
}

#[async_trait]
impl TaskStore for CountingStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        *self.creates.lock().unwrap() += new.len();
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
        let verbs = commands.iter().map(|command| command.event.verb());
        self.commands.lock().unwrap().extend(verbs);
        if *self.is_away.lock().unwrap() {
            let away = || StoreError::Unavailable {
                message: "away".into(),
                outcome_unknown: false,
            };
            return commands.iter().map(|_| Err(away())).collect();
        }
        self.inner.apply(now, commands).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        self.inner.due(query).await
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        self.inner.ready(job, limit).await
    }

    async fn owned(&self, worker: Option<&WorkerId>) -> Result<Vec<OwnedTask>, StoreError> {
        self.inner.owned(worker).await
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
impl JobStore for CountingStore {
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        self.inner.put_job(put).await
    }

    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        self.inner.job(name).await
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        self.inner.jobs().await
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
impl WorkerStore for CountingStore {
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
