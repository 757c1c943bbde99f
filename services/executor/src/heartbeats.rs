//! Registers the worker, and heartbeats its runs.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{Executor, config::HEARTBEAT_INTERVAL_MIN, run::Run};

/// Most heartbeats in one call.
const BATCH_MAX: usize = 1_000;
/// Timeout of a registration.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Wait after the first failed registration; doubled for each further one, up to the interval.
const RETRY_MIN: Duration = Duration::from_millis(50);

/// Registers the worker and renews the registration. Publishes the current interval in `interval`: `None` until the
/// first registration succeeds.
pub(crate) async fn register(
    executor: Arc<Executor>,
    interval: watch::Sender<Option<Duration>>,
    end: CancellationToken,
) {
    let configured = executor.config.heartbeat_interval;
    let mut failures = 0_u32;
    loop {
        let controller = &executor.controller;
        let call = controller.register_worker(executor.registration.clone());
        let answer = tokio::select! {
            biased;
            () = end.cancelled() => return,
            answer = tokio::time::timeout(CALL_MAX, call) => answer,
        };
        let wait = if let Ok(Ok(registered)) = answer {
            failures = 0;
            let wait = registered
                .interval
                .min(configured)
                .max(HEARTBEAT_INTERVAL_MIN);
            // Set before the interval is published, because the first poll waits for the interval.
            executor.pool.set_claims_start(registered.claims_start);
            interval.send_replace(Some(wait));
            wait
        } else {
            failures += 1;
            if failures == 1 {
                let error = match answer {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer".to_owned(),
                };
                tracing::warn!(%error, "failed to register; trying again");
            }
            let doubled = RETRY_MIN.saturating_mul(1 << failures.min(16));
            let jitter = 0.5 + executor.rng.jitter().get() / 2.0;
            doubled
                .min(configured)
                .mul_f64(jitter)
                .max(HEARTBEAT_INTERVAL_MIN)
        };
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Heartbeats the watched runs, and abandons claims that wait too long for a slot. All watched runs are checked once
/// each interval, and more often while one of them has a shorter lease.
pub(crate) async fn heartbeat(
    executor: Arc<Executor>,
    heartbeats: mpsc::Sender<Vec<Arc<Run>>>,
    interval: watch::Receiver<Option<Duration>>,
    end: CancellationToken,
) {
    let mut checked_at = Instant::now();
    loop {
        let usual = interval
            .borrow()
            .unwrap_or(executor.config.heartbeat_interval);
        let period = usual.min(executor.shortest_heartbeat());
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = tokio::time::sleep_until(checked_at + period) => {}
            // A run with a shorter lease is watched now, so the period is computed again.
            () = executor.heartbeat_sooner.notified() => continue,
        }
        checked_at = Instant::now();
        let mut runs = executor.watched();
        // Also stops runs whose time is up, even while a handler blocks its thread.
        runs.retain(|run| {
            let _ = run.stop_reason();
            run.takes_heartbeat(checked_at, usual, period)
        });
        for batch in runs.chunks(BATCH_MAX) {
            if heartbeats.send(batch.to_vec()).await.is_err() {
                return;
            }
        }
        let stale = executor.pool.take_stale(Instant::now());
        if !stale.is_empty() {
            tracing::warn!(
                tasks = stale.len(),
                "claims waited too long for a free slot and are abandoned",
            );
            executor.context.abandon(stale).await;
        }
    }
}
