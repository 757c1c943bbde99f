//! The frontend in the process of the store: one file per group of verbs.

mod change;
mod jobs;
mod read;
mod run_to_completion;
mod submit;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_api::{ApiError, Call, Dispatch, Frontend, JobPut, Submitted};
use dueline_domain::{Job, JobName, Modification, NewTask, RunningCancel, Task, TaskId};
use dueline_ports::{Clock, JobStats, ListQuery, Page, Rng, Sinks, Store, TaskQueue, WorkerRecord};
use dueline_runtime::{DueSignal, EndSignal, Performer, TaskGroup};
use tokio::sync::Notify;

use run_to_completion::run_to_completion;

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
    /// Wakes the consumer for tasks that become due later.
    pub due: Arc<DueSignal>,
    /// Signals the ends of tasks.
    pub ended: Arc<EndSignal>,
    /// Says which sinks a job may have.
    pub sinks: Arc<dyn Sinks>,
    /// A controller in this process whose waiting workers may get new tasks at once.
    pub dispatch: Option<Arc<dyn Dispatch>>,
    /// Notified when jobs are added or deleted, paused or resumed.
    pub jobs_changed: Arc<Notify>,
}

impl FrontendDeps {
    /// Does the advisory effects of the frontend's transitions.
    fn effects(&self) -> Performer<'_> {
        Performer {
            queue: &*self.queue,
            due: &self.due,
            ended: &self.ended,
        }
    }
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
    detached_calls: TaskGroup,
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
                detached_calls: TaskGroup::new(),
                submitted: metrics::counter!("dueline_tasks_submitted_total"),
                repeated: metrics::counter!("dueline_submits_repeated_total"),
                refused: metrics::counter!("dueline_submits_refused_total"),
            }),
        }
    }

    /// Waits until the calls that their callers gave up on are over. Call it at shutdown, after the last request.
    pub async fn drained(&self) {
        // A failure in there was logged when it happened, and no caller waits for the answer.
        let _ = self.inner.detached_calls.wait().await;
    }

    /// Runs a verb of `Inner` to completion, even if the caller drops the call.
    async fn run<T, F>(&self, verb: impl FnOnce(Arc<Inner>) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        run_to_completion(&self.inner.detached_calls, verb(self.inner.clone())).await
    }
}

#[async_trait]
impl Frontend for FrontendService {
    async fn put_job(&self, call: &Call, put: JobPut) -> Result<Arc<Job>, ApiError> {
        let call = call.clone();
        self.run(|inner| async move { inner.put_job(&call, put).await })
            .await
    }

    async fn job(&self, _: &Call, name: &JobName) -> Result<Arc<Job>, ApiError> {
        self.inner.job(name).await
    }

    async fn jobs(&self, _: &Call) -> Result<Vec<Arc<Job>>, ApiError> {
        Ok(self.inner.deps.store.jobs().await?)
    }

    async fn pause_job(
        &self,
        _: &Call,
        name: &JobName,
        paused: bool,
    ) -> Result<Arc<Job>, ApiError> {
        let name = name.clone();
        self.run(|inner| async move { inner.pause_job(&name, paused).await })
            .await
    }

    async fn delete_job(&self, _: &Call, name: &JobName) -> Result<(), ApiError> {
        let name = name.clone();
        self.run(|inner| async move { inner.delete_job(&name).await })
            .await
    }

    async fn job_stats(&self, _: &Call, name: &JobName) -> Result<JobStats, ApiError> {
        self.inner.job_stats(name).await
    }

    async fn submit(&self, call: &Call, tasks: Vec<NewTask>) -> Vec<Result<Submitted, ApiError>> {
        let call = call.clone();
        self.run(|inner| async move { inner.submit(&call, tasks).await })
            .await
    }

    async fn task(
        &self,
        call: &Call,
        job: &JobName,
        id: &TaskId,
        wait: Option<Duration>,
    ) -> Result<Task, ApiError> {
        let task = self.inner.task(call, job, id, wait).await?;
        Ok(task.without_secrets())
    }

    async fn tasks(&self, _: &Call, query: ListQuery) -> Result<Page, ApiError> {
        let Page { tasks, next } = self.inner.tasks(query).await?;
        let tasks = tasks.into_iter().map(Task::without_secrets).collect();
        Ok(Page { tasks, next })
    }

    async fn cancel(
        &self,
        _: &Call,
        job: &JobName,
        id: &TaskId,
        running: RunningCancel,
        reason: Option<Arc<str>>,
    ) -> Result<Task, ApiError> {
        let (job, id) = (job.clone(), *id);
        let cancel =
            |inner: Arc<Inner>| async move { inner.cancel(job, id, running, reason).await };
        self.run(cancel).await.map(Task::without_secrets)
    }

    async fn modify(
        &self,
        _: &Call,
        job: &JobName,
        id: &TaskId,
        change: Modification,
    ) -> Result<Task, ApiError> {
        let (job, id) = (job.clone(), *id);
        let modify = |inner: Arc<Inner>| async move { inner.modify(job, id, change).await };
        self.run(modify).await.map(Task::without_secrets)
    }

    async fn redrive(&self, _: &Call, job: &JobName, id: &TaskId) -> Result<Task, ApiError> {
        let (job, id) = (job.clone(), *id);
        let redrive = |inner: Arc<Inner>| async move { inner.redrive(job, id).await };
        self.run(redrive).await.map(Task::without_secrets)
    }

    async fn workers(&self, _: &Call) -> Result<Vec<WorkerRecord>, ApiError> {
        let mut workers = self.inner.deps.store.workers().await?;
        // Other processes of a fleet have records of their own.
        workers.retain(|worker| &*worker.kind == "executor");
        Ok(workers)
    }
}
