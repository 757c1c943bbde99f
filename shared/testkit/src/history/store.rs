//! Sits directly on a store and records every write in the order in which the store accepted it.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_domain::{Job, JobName, Task, TaskId, TaskRef, Timestamp, Verb, WorkerId};
use dueline_ports::{
    Applied, Command, Create, Created, DuePage, DueQuery, JobStats, JobStore, ListQuery, OwnedTask,
    Page, Pruned, PutJob, Store, StoreError, TaskStore, WorkerRecord, WorkerStore,
};

use super::{History, What};

/// A store whose writes are recorded.
///
/// The order is true only if the store answers a batch within one poll, as the one in memory does; so nothing but a
/// store in memory belongs below this.
pub struct RecordingStore {
    inner: Arc<dyn Store>,
    history: History,
}

impl RecordingStore {
    /// Records into `history` what happens to `inner`.
    pub fn new(inner: Arc<dyn Store>, history: History) -> Self {
        Self { inner, history }
    }

    fn stored(&self, verb: Option<Verb>, now: Timestamp, task: &Task, repeated: bool) {
        let id = task.id;
        self.history.record(match repeated {
            true => What::Repeated { verb, id },
            false => What::Stored {
                verb,
                now,
                task: Box::new(task.clone()),
            },
        });
    }
}

#[async_trait]
impl TaskStore for RecordingStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let answers = self.inner.create(now, new).await;
        for created in answers.iter().flatten() {
            self.stored(None, now, &created.task, created.existed);
        }
        answers
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        self.inner.get(job, id).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let told: Vec<_> = commands.iter().map(|c| (c.event.verb(), c.id)).collect();
        let answers = self.inner.apply(now, commands).await;
        for ((verb, id), answer) in told.into_iter().zip(&answers) {
            match answer {
                Ok(applied) => self.stored(Some(verb), now, &applied.task, applied.repeated),
                Err(StoreError::Rejected(rejected)) => self.history.record(What::Refused {
                    verb,
                    id,
                    state: rejected.state,
                    reason: rejected.reason,
                }),
                Err(_) => {}
            }
        }
        answers
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
impl JobStore for RecordingStore {
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
impl WorkerStore for RecordingStore {
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
