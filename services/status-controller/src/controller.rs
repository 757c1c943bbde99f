//! The service, and its implementation of [`StatusController`].

use std::sync::Arc;

use async_trait::async_trait;
use dueline_api::{
    ApiError, Assignment, Registered, Registration, Report, ReportAck, ServedJob, StatusController,
};
use dueline_domain::{TaskRef, WorkerId};

use crate::{
    Config, Deps, lease_cache::LeaseCache, silent_workers::SilentWorkers,
    worker_registry::WorkerRegistry,
};

/// The status controller: claims tasks for workers and processes their reports.
///
/// It has no task state of its own: any number of status controllers may work on one store. Its lease cache only saves
/// writes.
#[derive(Debug)]
pub struct StatusControllerService {
    pub(crate) config: Config,
    pub(crate) deps: Deps,
    pub(crate) registry: WorkerRegistry,
    pub(crate) leases: LeaseCache,
    pub(crate) silent: SilentWorkers,
}

impl StatusControllerService {
    /// A controller over `deps`. Its background loops are in [`crate::run`].
    pub fn new(config: Config, deps: Deps) -> Arc<Self> {
        Arc::new(Self {
            config,
            deps,
            registry: WorkerRegistry::default(),
            leases: LeaseCache::default(),
            silent: SilentWorkers::default(),
        })
    }
}

/// Each call is one batch for the store. When a future is dropped midway, the outcome of its writes is unknown, as with
/// a lost answer; the caller repeats the call.
#[async_trait]
impl StatusController for StatusControllerService {
    async fn claim(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        self.claim_all(worker, messages, start).await
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        self.report_all(reports).await
    }

    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError> {
        Ok(self.renew_worker(worker).await?)
    }

    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        let tasks = self.reclaim_all(worker).await?;
        self.remove_worker(worker).await?;
        tracing::info!(worker.id = %worker, tasks, "worker has deregistered");
        Ok(())
    }

    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        let jobs = self.deps.store.jobs().await?;
        let unpaused = jobs.iter().filter(|job| !job.paused);
        let served = unpaused.map(|job| ServedJob {
            name: job.name.clone(),
            handler: job.handler.kind.clone(),
        });
        Ok(served.collect())
    }
}
