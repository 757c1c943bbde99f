//! Finished tasks leave when their retention is over.

use dueline_ports::StoreError;
use dueline_runtime::Shutdown;

use crate::{StatusController, metrics};

/// Most batches of one round: what is left then waits for the next one.
const BATCHES_MAX: usize = 100;

impl StatusController {
    /// Deletes what has outlived its retention, batch by batch.
    pub(crate) async fn prune(&self, shutdown: &Shutdown) -> Result<(), StoreError> {
        let batch = self.config.prune_batch.max(1);
        for _ in 0..BATCHES_MAX {
            let now = self.deps.clock.now();
            let pruned = self.deps.store.prune(now, batch).await?;
            if pruned.deleted > 0 {
                metrics::count_pruned(pruned.deleted);
                tracing::debug!(tasks = pruned.deleted, "finished tasks are pruned");
            }
            if !pruned.more || shutdown.is_intake_stopped() {
                break;
            }
        }
        Ok(())
    }
}
