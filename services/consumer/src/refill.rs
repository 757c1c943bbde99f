//! Sends ready tasks to bounded queues that had no room for them before.

use std::time::Duration;

use dueline_ports::{QueueError, RefillDemand, StoreError};
use dueline_runtime::Shutdown;

use crate::Deps;

/// Pause after a failed refill; the queue repeats its demand.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Refills queues with demand until the intake is stopped.
pub(crate) async fn run(deps: Deps, shutdown: Shutdown) {
    loop {
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            () = refill_once(&deps) => {}
        }
    }
}

/// Refills the queues that currently have demand. Cancel safe: the store has the tasks that were not sent.
async fn refill_once(deps: &Deps) {
    let mut has_failed = false;
    for demand in deps.queue.refill_demand().await {
        match send_ready_tasks(deps, &demand).await {
            Ok(complete) => deps.queue.refilled(&demand, complete),
            Err(error) => {
                tracing::warn!(job.name = %demand.job, %error, "failed to refill a queue");
                has_failed = true;
            }
        }
    }
    // One pause for all queues. A pause per failed queue would delay the queues after it.
    if has_failed {
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Sends the most urgent ready tasks of a job. Returns whether all ready tasks were sent.
async fn send_ready_tasks(deps: &Deps, demand: &RefillDemand) -> Result<bool, StoreError> {
    let job = &demand.job;
    // The queue still holds the most urgent of the ready tasks. Reading that many tasks more finds `room` new ones.
    let Ok(depth) = deps.queue.depth(job).await else {
        return Ok(true);
    };
    let in_queue = usize::try_from(depth.visible + depth.in_flight).unwrap_or(usize::MAX);
    let limit = demand.room.saturating_add(in_queue);
    let messages = match deps.store.ready(job, limit).await {
        Err(StoreError::NotFound { .. }) => return Ok(true),
        ready => ready?,
    };
    let read_all = messages.len() < limit;
    let results = deps.queue.send(messages).await;
    let sent = results.iter().filter(|result| result.is_ok()).count();
    metrics::counter!("dueline_refilled_total", "job" => job.as_str().to_owned())
        .increment(sent as u64);
    // The queue remembers messages that it refused because it was full, but not those that failed otherwise.
    let is_lost = |result: &Result<(), QueueError>| matches!(result, Err(error) if !matches!(error, QueueError::Full(_)));
    Ok(read_all && !results.iter().any(is_lost))
}
