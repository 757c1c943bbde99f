//! Signs of life: of the worker, and of what it runs.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{Executor, run::Run, runner::give_back};

/// Most heartbeats in one call.
const BATCH_MAX: usize = 1_000;
/// Shortest interval, whatever the other side says.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// A call that takes longer has failed.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Wait after the first registration that failed; it doubles each time, up to the interval.
const RETRY_MIN: Duration = Duration::from_millis(50);

/// Registers the worker and keeps it registered. The interval that holds is told through `interval`; there is none
/// before the first success.
pub(crate) async fn register(
    executor: Arc<Executor>,
    interval: watch::Sender<Option<Duration>>,
    end: CancellationToken,
) {
    let wanted = executor.config.heartbeat_interval;
    let mut failures = 0_u32;
    loop {
        let call = executor.work.alive(executor.registration.clone());
        let answer = tokio::select! {
            biased;
            () = end.cancelled() => return,
            answer = tokio::time::timeout(CALL_MAX, call) => answer,
        };
        let wait = if let Ok(Ok(alive)) = answer {
            failures = 0;
            let wait = alive.interval.min(wanted).max(INTERVAL_MIN);
            // Before the interval: the first question for work waits for that.
            executor.pool.set_claims_start(alive.claims_start);
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
            doubled.min(wanted).mul_f64(jitter).max(INTERVAL_MIN)
        };
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Keeps the leases of all runs alive, and gives back what waits for a slot for too long. All runs are looked at once
/// each interval, and more often while one with a shorter lease is among them.
pub(crate) async fn heartbeat(
    executor: Arc<Executor>,
    beats: mpsc::Sender<Vec<Arc<Run>>>,
    interval: watch::Receiver<Option<Duration>>,
    end: CancellationToken,
) {
    let mut looked = Instant::now();
    loop {
        let usual = interval
            .borrow()
            .unwrap_or(executor.config.heartbeat_interval);
        let period = usual.min(executor.shortest_beat());
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = tokio::time::sleep_until(looked + period) => {}
            // A run whose lease is short has begun: it may not wait as long as this.
            () = executor.beat_sooner.notified() => continue,
        }
        looked = Instant::now();
        let mut runs = executor.watched();
        // This also stops what is overdue, even while a handler keeps its own thread busy.
        runs.retain(|run| {
            let _ = run.stop_reason();
            run.takes_heartbeat(looked, usual, period)
        });
        for batch in runs.chunks(BATCH_MAX) {
            if beats.send(batch.to_vec()).await.is_err() {
                return;
            }
        }
        let stale = executor.pool.take_stale(Instant::now());
        if !stale.is_empty() {
            tracing::warn!(
                tasks = stale.len(),
                "claims waited too long for a free slot and are given back",
            );
            give_back(&executor, stale).await;
        }
    }
}
