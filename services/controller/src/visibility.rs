//! Extends the visibility timeouts of buffered messages, so that no other controller receives them.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::ControllerService;

/// Extends each buffered message after half of its visibility timeout, at the latest after three quarters.
pub(crate) async fn run(controller: Arc<ControllerService>, stop: CancellationToken) {
    let timeout = controller.deps.queue.visibility_timeout();
    let mut ticks = interval((timeout / 4).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            now = ticks.tick() => extend(&controller, now, timeout / 2).await,
        }
    }
}

async fn extend(controller: &ControllerService, now: Instant, hidden_for: Duration) {
    let Some(since) = now.checked_sub(hidden_for) else {
        return;
    };
    let receipts = controller.buffer().renew_hidden_since(since, now);
    if receipts.is_empty() {
        return;
    }
    // If this fails, the messages become visible and other controllers may receive them too. Only one claim succeeds.
    if let Err(error) = controller.deps.queue.extend(receipts).await {
        tracing::warn!(%error, "failed to keep buffered messages invisible");
    }
}
