//! The loops of the service: the pruner, and the expiry of workers.

use std::{sync::Arc, time::Duration};

use dueline_runtime::{ServiceError, Shutdown, TaskGroup};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::StatusControllerService;

/// Prunes finished tasks and removes expired workers until `shutdown` stops intake. Calls to the controller do not
/// depend on it.
pub async fn run(
    controller: Arc<StatusControllerService>,
    shutdown: Shutdown,
) -> Result<(), ServiceError> {
    let shutdown = shutdown.child();
    let group = TaskGroup::new();
    group.spawn_infallible("pruner", prune(controller.clone(), shutdown.clone()));
    group.spawn_infallible("worker expiry", expire(controller, shutdown.clone()));
    tokio::select! {
        biased;
        _ = group.failed() => shutdown.stop_work(),
        () = shutdown.intake_stopped() => {}
    }
    group.wait().await
}

async fn prune(controller: Arc<StatusControllerService>, shutdown: Shutdown) {
    let mut ticks = every(controller.config.prune_period);
    while next(&mut ticks, &shutdown).await {
        if let Err(error) = controller.prune(&shutdown).await {
            tracing::warn!(%error, "failed to prune finished tasks; the next round tries again");
        }
    }
}

async fn expire(controller: Arc<StatusControllerService>, shutdown: Shutdown) {
    let mut ticks = every(controller.config.worker_timeout / 4);
    while next(&mut ticks, &shutdown).await {
        if let Err(error) = controller.remove_expired_workers().await {
            tracing::warn!(%error, "failed to remove expired workers; the next round tries again");
        }
        if let Err(error) = controller.reclaim_from_silent_workers().await {
            tracing::warn!(%error, "failed to reclaim tasks of silent workers; the next round tries again");
        }
    }
}

fn every(period: Duration) -> Interval {
    let period = period.max(Duration::from_millis(1));
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Waits for the next tick. Returns `false` when the service must stop.
async fn next(ticks: &mut Interval, shutdown: &Shutdown) -> bool {
    tokio::select! {
        biased;
        () = shutdown.intake_stopped() => false,
        _ = ticks.tick() => true,
    }
}
