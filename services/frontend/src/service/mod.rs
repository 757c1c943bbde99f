//! The frontend in the process of the store: one file per group of verbs.

mod change;
mod jobs;
mod read;
mod submit;
mod to_the_end;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_api::{ApiError, Dispatch, Frontend, Submitted};
use dueline_domain::{Job, JobName, Modification, NewTask, RunningCancel, Task, TaskId};
use dueline_ports::{Clock, JobStats, ListQuery, Page, Rng, Store, TaskQueue, WorkerRecord};
use dueline_runtime::{DueSignal, EndSignal, TaskGroup};
use tokio::sync::Notify;

use to_the_end::to_the_end;

/// What the frontend works with.
#[derive(Clone)]
pub struct FrontendDeps {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// Where due tasks are sent.
    pub queue: Arc<dyn TaskQueue>,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Tokens, write names and ids.
    pub rng: Arc<dyn Rng>,
    /// Told about tasks that become due later.
    pub due: Arc<DueSignal>,
    /// Tells about tasks that end.
    pub ended: Arc<EndSignal>,
    /// A controller in this process whose waiting workers may get new tasks at once.
    pub dispatch: Option<Arc<dyn Dispatch>>,
    /// Told when there are other jobs than before, or a job is paused or resumed.
    pub jobs_changed: Arc<Notify>,
}

/// Creates jobs and tasks, changes them on request, and answers questions about them.
///
/// A call that changes something runs to its end even when its caller gives up: a task that was stored is also sent.
pub struct FrontendService {
    inner: Arc<Inner>,
}

struct Inner {
    deps: FrontendDeps,
    /// Calls that their callers gave up on.
    left_behind: TaskGroup,
    submitted: metrics::Counter,
    repeated: metrics::Counter,
    refused: metrics::Counter,
}

impl FrontendService {
    /// A frontend over a store and a queue.
    pub fn new(deps: FrontendDeps) -> Self {
        Self {
            inner: Arc::new(Inner {
                deps,
                left_behind: TaskGroup::new(),
                submitted: metrics::counter!("dueline_tasks_submitted_total"),
                repeated: metrics::counter!("dueline_submits_repeated_total"),
                refused: metrics::counter!("dueline_submits_refused_total"),
            }),
        }
    }

    /// Waits until the calls that their callers gave up on are over. Call it at shutdown, after the last request.
    pub async fn drained(&self) {
        // A failure in there was logged when it happened, and nobody waits for the answer.
        let _ = self.inner.left_behind.wait().await;
    }

    /// Runs a verb of `Inner` to its end, whatever the caller does.
    async fn run<T, F>(&self, verb: impl FnOnce(Arc<Inner>) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        to_the_end(&self.inner.left_behind, verb(self.inner.clone())).await
    }
}

#[async_trait]
impl Frontend for FrontendService {
    async fn put_job(&self, job: Job) -> Result<Arc<Job>, ApiError> {
        self.run(|inner| async move { inner.put_job(job).await })
            .await
    }

    async fn job(&self, name: &JobName) -> Result<Arc<Job>, ApiError> {
        self.inner.job(name).await
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, ApiError> {
        Ok(self.inner.deps.store.jobs().await?)
    }

    async fn pause_job(&self, name: &JobName, paused: bool) -> Result<Arc<Job>, ApiError> {
        let name = name.clone();
        self.run(|inner| async move { inner.pause_job(&name, paused).await })
            .await
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), ApiError> {
        let name = name.clone();
        self.run(|inner| async move { inner.delete_job(&name).await })
            .await
    }

    async fn job_stats(&self, name: &JobName) -> Result<JobStats, ApiError> {
        self.inner.job_stats(name).await
    }

    async fn submit(&self, tasks: Vec<NewTask>) -> Vec<Result<Submitted, ApiError>> {
        self.run(|inner| async move { inner.submit(tasks).await })
            .await
    }

    async fn task(
        &self,
        job: &JobName,
        id: &TaskId,
        wait: Option<Duration>,
    ) -> Result<Task, ApiError> {
        self.inner.task(job, id, wait).await
    }

    async fn tasks(&self, query: ListQuery) -> Result<Page, ApiError> {
        self.inner.tasks(query).await
    }

    async fn cancel(
        &self,
        job: &JobName,
        id: &TaskId,
        running: RunningCancel,
        reason: Option<Arc<str>>,
    ) -> Result<Task, ApiError> {
        let (job, id) = (job.clone(), *id);
        self.run(|inner| async move { inner.cancel(job, id, running, reason).await })
            .await
    }

    async fn modify(
        &self,
        job: &JobName,
        id: &TaskId,
        change: Modification,
    ) -> Result<Task, ApiError> {
        let (job, id) = (job.clone(), *id);
        self.run(|inner| async move { inner.modify(job, id, change).await })
            .await
    }

    async fn redrive(&self, job: &JobName, id: &TaskId) -> Result<Task, ApiError> {
        let (job, id) = (job.clone(), *id);
        self.run(|inner| async move { inner.redrive(job, id).await })
            .await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, ApiError> {
        let mut workers = self.inner.deps.store.workers().await?;
        // Other processes of a fleet find each other by records of their own.
        workers.retain(|worker| &*worker.kind == "executor");
        Ok(workers)
    }
}
