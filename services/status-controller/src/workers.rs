//! Registers, removes and expires workers.

use std::time::Duration;

use dueline_api::{Registered, Registration};
use dueline_domain::WorkerId;
use dueline_ports::{StoreError, WorkerRecord};

use crate::{StatusControllerService, metrics, worker_registry::is_executor};

/// Shortest time between two writes of one worker's record.
const STORE_EVERY_MIN: Duration = Duration::from_secs(4);

impl StatusControllerService {
    /// Registers a worker or renews its registration.
    pub(crate) async fn renew_worker(
        &self,
        worker: Registration,
    ) -> Result<Registered, StoreError> {
        let store = &self.deps.store;
        if !self.registry.contains(&worker.worker) {
            // The worker may have registered before a restart of this process; its record keeps the original start.
            self.registry.merge(store.workers().await?);
        }
        self.silent.remove(&worker.worker);
        let interval = self.config.interval;
        let now = self.deps.clock.now();
        // Not every renewal is stored, because the list of workers is not worth that many writes.
        if let Some(record) = self
            .registry
            .renew(worker, now, (interval * 2).max(STORE_EVERY_MIN))
        {
            let id = record.id.clone();
            store.put_workers(vec![record]).await?;
            self.registry.set_stored(&id, now);
        }
        let claims_start = self.config.claims_start;
        Ok(Registered {
            interval,
            claims_start,
        })
    }

    /// Removes a worker.
    pub(crate) async fn remove_worker(&self, worker: &WorkerId) -> Result<(), StoreError> {
        let removed = self.deps.store.remove_workers(vec![worker.clone()]).await;
        if removed.is_ok() {
            self.registry.remove(worker);
        }
        removed
    }

    /// Removes the workers whose registrations have expired. Their tasks are reclaimed when the leases end, at the latest
    /// after the length of each lease. Tasks of embedded workers are reclaimed at once, because no network failure can
    /// have delayed their renewals.
    pub(crate) async fn remove_expired_workers(&self) -> Result<(), StoreError> {
        self.registry.merge(self.deps.store.workers().await?);
        let expired = self.registry.expired(self.config.worker_timeout);
        let mut failed = None;
        for record in &expired {
            match self.remove_expired(record).await {
                Ok(()) => {
                    tracing::warn!(
                        worker.id = %record.id,
                        "worker did not renew its registration in time and is removed"
                    );
                    metrics::count_expired_workers(1);
                }
                // The other workers are removed all the same, and this one in the next round.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn remove_expired(&self, record: &WorkerRecord) -> Result<(), StoreError> {
        if !is_executor(record) {
            // It owns no tasks.
        } else if record.embedded {
            self.reclaim_all(&record.id).await?;
        } else {
            self.silent.add(&record.id);
        }
        self.remove_worker(&record.id).await
    }
}
