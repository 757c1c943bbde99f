//! Bounded queues get back what they had no room for.

use std::time::Duration;

use dueline_ports::{QueueError, Starving, StoreError};
use dueline_runtime::Shutdown;

use crate::Deps;

/// Pause after a round in which a refill failed; the queue asks again by itself.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Refills hungry queues until the intake is stopped.
pub(crate) async fn run(deps: Deps, shutdown: Shutdown) {
    loop {
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            () = round(&deps) => {}
        }
    }
}

/// Refills the queues that are hungry together. Stopping in the middle loses nothing: the store has what was not sent.
async fn round(deps: &Deps) {
    let mut has_failed = false;
    for starving in deps.queue.starving().await {
        match sent_again(deps, &starving).await {
            Ok(complete) => deps.queue.refilled(&starving, complete),
            Err(error) => {
                tracing::warn!(job.name = %starving.job, %error, "failed to refill a queue");
                has_failed = true;
            }
        }
    }
    // One pause for all: each queue that waited its turn behind the pauses of the others would stay hungry for longer.
    if has_failed {
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Sends the most urgent ready tasks of the job; true when those were all.
async fn sent_again(deps: &Deps, starving: &Starving) -> Result<bool, StoreError> {
    let job = &starving.job;
    // The most urgent tasks of the store are those that the queue holds already: to bring it `room` new ones, read
    // past the ones it holds.
    let Ok(depth) = deps.queue.depth(job).await else {
        return Ok(true);
    };
    let held = usize::try_from(depth.visible + depth.in_flight).unwrap_or(usize::MAX);
    let limit = starving.room.saturating_add(held);
    let messages = match deps.store.ready(job, limit).await {
        Err(StoreError::NotFound { .. }) => return Ok(true),
        ready => ready?,
    };
    let all_were_read = messages.len() < limit;
    let results = deps.queue.send(messages).await;
    let sent = results.iter().filter(|result| result.is_ok()).count();
    metrics::counter!("dueline_refilled_total", "job" => job.as_str().to_owned())
        .increment(sent as u64);
    // A refusal for want of room is remembered by the queue itself; any other one is not.
    let is_lost = |result: &Result<(), QueueError>| matches!(result, Err(error) if !matches!(error, QueueError::Full(_)));
    Ok(all_were_read && !results.iter().any(is_lost))
}
