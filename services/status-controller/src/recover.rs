//! Recovery after a crash of the process that owned the store.

use std::sync::Arc;

use crate::StatusControllerService;

/// Reclaims the tasks of workers that were embedded in an earlier process, and returns how many.
///
/// For the process that owns the store, once, before its own workers register: at that time each record of an embedded
/// worker belongs to a process that is gone. The tasks of other workers are not reclaimed, because those workers may be
/// alive; neither are tasks of workers without a record. A task that cannot be reclaimed now is reclaimed at the end of
/// its lease.
pub async fn recover(controller: Arc<StatusControllerService>) -> usize {
    let records = match controller.deps.store.workers().await {
        Ok(records) => records,
        Err(error) => {
            tracing::warn!(
                %error,
                "failed to read the workers of the last process; their tasks are reclaimed when the leases end"
            );
            return 0;
        }
    };
    let mut recovered = 0;
    for record in records {
        if !record.embedded || controller.registry.contains(&record.id) {
            continue;
        }
        let reclaimed = controller.reclaim_all(&record.id).await;
        let removed = match reclaimed {
            Ok(tasks) => {
                recovered += tasks;
                controller.remove_worker(&record.id).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(
                worker.id = %record.id,
                %error,
                "failed to reclaim all tasks of a dead worker; the others are reclaimed when their leases end"
            );
        }
    }
    if recovered > 0 {
        tracing::info!(tasks = recovered, "reclaimed tasks of the last process");
    }
    recovered
}
