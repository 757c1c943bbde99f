//! Deletes finished tasks past their retention.

use dueline_ports::StoreError;
use dueline_runtime::Shutdown;

use crate::{StatusControllerService, metrics};

/// Most batches in one round. Further tasks are pruned in the next round.
const BATCHES_MAX: usize = 100;

impl StatusControllerService {
    /// Deletes finished tasks past their retention, batch by batch.
    pub(crate) async fn prune(&self, shutdown: &Shutdown) -> Result<(), StoreError> {
        let batch = self.config.prune_batch.max(1);
        for _ in 0..BATCHES_MAX {
            let now = self.deps.clock.now();
            let pruned = self.deps.store.prune(now, batch).await?;
            if pruned.deleted > 0 {
                metrics::count_pruned(pruned.deleted);
                tracing::debug!(tasks = pruned.deleted, "pruned finished tasks");
            }
            if !pruned.more || shutdown.is_intake_stopped() {
                break;
            }
        }
        Ok(())
    }
}
