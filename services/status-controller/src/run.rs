//! What the service does by itself.

use std::{sync::Arc, time::Duration};

use dueline_runtime::{ServiceError, Shutdown, TaskGroup};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::StatusController;

/// Prunes finished tasks and forgets silent workers until `shutdown` stops intake. Calls of workers are served by
/// the controller itself, with or without this.
pub async fn run(
    controller: Arc<StatusController>,
    shutdown: Shutdown,
) -> Result<(), ServiceError> {
    let shutdown = shutdown.child();
    let group = TaskGroup::new();
    group.spawn_infallible("pruner", prune(controller.clone(), shutdown.clone()));
    group.spawn_infallible("worker list", forget(controller, shutdown.clone()));
    tokio::select! {
        biased;
        _ = group.failed() => shutdown.stop_work(),
        () = shutdown.intake_stopped() => {}
    }
    group.wait().await
}

async fn prune(controller: Arc<StatusController>, shutdown: Shutdown) {
    let mut ticks = every(controller.config.prune_period);
    while next(&mut ticks, &shutdown).await {
        if let Err(error) = controller.prune(&shutdown).await {
            tracing::warn!(%error, "failed to prune finished tasks; the next round goes on");
        }
    }
}

async fn forget(controller: Arc<StatusController>, shutdown: Shutdown) {
    let mut ticks = every(controller.config.worker_forgotten_after / 4);
    while next(&mut ticks, &shutdown).await {
        if let Err(error) = controller.forget_silent_workers().await {
            tracing::warn!(%error, "failed to tidy the list of workers; the next round goes on");
        }
    }
}

fn every(period: Duration) -> Interval {
    let period = period.max(Duration::from_millis(1));
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Waits for the next tick; `false` when the service is to stop.
async fn next(ticks: &mut Interval, shutdown: &Shutdown) -> bool {
    tokio::select! {
        biased;
        () = shutdown.intake_stopped() => false,
        _ = ticks.tick() => true,
    }
}
