//! After a crash of the process that owned the store.

use std::sync::Arc;

use crate::StatusController;

/// Hands on what the workers of an earlier process owned that lived inside it; answers how many tasks that were.
///
/// For the process that owns the store, once, before its own workers register: a record of an embedded worker that
/// is there already belongs to a process that is gone. Workers elsewhere are left alone, they may well be alive; so
/// are tasks of workers without a record. Whatever cannot be handed on now comes back when its lease ends.
pub async fn recover(controller: Arc<StatusController>) -> usize {
    let records = match controller.deps.store.workers().await {
        Ok(records) => records,
        Err(error) => {
            tracing::warn!(%error, "failed to read the workers of the last run; their leases must end first");
            return 0;
        }
    };
    let mut recovered = 0;
    for record in records {
        if !record.embedded || controller.registry.knows(&record.id) {
            continue;
        }
        let handed_back = controller.hand_back(&record.id).await;
        let removed = match handed_back {
            Ok(tasks) => {
                recovered += tasks;
                controller.remove_worker(&record.id).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(worker.id = %record.id, %error, "failed to take back all tasks of a dead worker");
        }
    }
    if recovered > 0 {
        tracing::info!(
            tasks = recovered,
            "tasks of the last run are handed on again"
        );
    }
    recovered
}
