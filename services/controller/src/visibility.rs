//! Keeps buffered messages invisible to others.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::Controller;

/// Extends every buffered message once half of its visibility timeout has passed; three quarters at the latest.
pub(crate) async fn run(controller: Arc<Controller>, stop: CancellationToken) {
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

async fn extend(controller: &Controller, now: Instant, older_than: Duration) {
    let Some(than) = now.checked_sub(older_than) else {
        return;
    };
    let receipts = controller.buffer().renew_hidden_before(than, now);
    if receipts.is_empty() {
        return;
    }
    // If this fails, the messages come back and others may run them; a claim decides who does.
    if let Err(error) = controller.deps.queue.extend(receipts).await {
        tracing::warn!(%error, "failed to keep buffered messages invisible");
    }
}
