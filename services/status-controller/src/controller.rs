//! The service as its callers see it.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_api::{Alive, ApiError, Assignment, Registration, Report, Reported, ServedJob, Status};
use dueline_domain::{StateKind, Task, TaskRef, WorkerId};

use crate::{Config, Deps, heartbeats::Heartbeats, workers::Registry};

/// The status controller: makes workers owners of tasks and takes their reports.
///
/// It holds no task state of its own: any number of them may work on one store. What it remembers of leases it wrote
/// only saves writes.
#[derive(Debug)]
pub struct StatusController {
    pub(crate) config: Config,
    pub(crate) deps: Deps,
    pub(crate) registry: Registry,
    pub(crate) heartbeats: Heartbeats,
}

impl StatusController {
    /// A controller over `deps`. [`crate::run`] does what it does by itself.
    pub fn new(config: Config, deps: Deps) -> Arc<Self> {
        Arc::new(Self {
            config,
            deps,
            registry: Registry::default(),
            heartbeats: Heartbeats::default(),
        })
    }

    /// Tells those who wait for what has just happened to `task`.
    pub(crate) fn signal(&self, task: &Task) {
        let kind = task.kind();
        if kind.is_final() {
            self.deps.ended.ended(&task.id);
        } else if kind == StateKind::Retriable
            && let Some(retry_at) = task.state.trigger_at()
        {
            self.deps.due.announce(retry_at);
        }
    }
}

/// Each call is one batch for the store. When a future is dropped midway, the store may or may not have the writes:
/// that is a lost answer, and repeating the call deals with it.
#[async_trait]
impl Status for StatusController {
    async fn claim(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        self.claim_all(worker, messages, start).await
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<Reported, ApiError>> {
        self.report_all(reports).await
    }

    async fn alive(&self, worker: Registration) -> Result<Alive, ApiError> {
        Ok(self.see_worker(worker).await?)
    }

    async fn leave(&self, worker: &WorkerId) -> Result<(), ApiError> {
        let tasks = self.hand_back(worker).await?;
        self.remove_worker(worker).await?;
        tracing::info!(worker.id = %worker, tasks, "worker has left");
        Ok(())
    }

    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        let jobs = self.deps.store.jobs().await?;
        let open = jobs.iter().filter(|job| !job.paused);
        let served = open.map(|job| ServedJob {
            name: job.name.clone(),
            handler: job.handler.kind.clone(),
        });
        Ok(served.collect())
    }
}
