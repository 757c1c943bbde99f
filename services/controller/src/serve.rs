//! Decides which jobs are served, and runs a receive loop for each.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use dueline_api::ServedJob;
use dueline_domain::JobName;
use dueline_runtime::{ServiceError, Shutdown, TaskGroup};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{
    ControllerService, Serve,
    receive::{self, ReceiveLoop, nack_too_heavy},
    visibility,
};

/// Runs until the intake is stopped or one of the loops has failed. Buffered messages are then returned to their
/// queues, visible at once, and polls fail with `shutting_down`.
pub async fn run(
    controller: Arc<ControllerService>,
    shutdown: Shutdown,
) -> Result<(), ServiceError> {
    let stop = CancellationToken::new();
    let group = TaskGroup::new();
    group.spawn_infallible("serve", {
        serve(controller.clone(), group.clone(), stop.clone())
    });
    group.spawn_infallible("visibility", {
        visibility::run(controller.clone(), stop.clone())
    });
    let dispatches = controller.dispatches.clone();
    tokio::select! {
        biased;
        () = shutdown.intake_stopped() => {}
        _ = group.failed() => {}
        _ = dispatches.failed() => {}
    }
    controller.stopped.cancel();
    stop.cancel();
    let ended = group.wait().await;
    // The loops have ended, so nothing is added to the buffer any more.
    let jobs = controller.buffer().jobs();
    let receipts = jobs.iter().flat_map(|job| controller.buffer().close(job));
    let receipts = receipts.collect();
    controller.nack(receipts, Duration::ZERO).await;
    ended.and(dispatches.wait().await)
}

/// Keeps one receive loop per job that this host may serve and a worker here can run.
async fn serve(controller: Arc<ControllerService>, group: TaskGroup, stop: CancellationToken) {
    let mut ticks = interval(controller.config.refresh_period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut jobs: Vec<ServedJob> = Vec::new();
    let mut loops: BTreeMap<JobName, ReceiveLoop> = BTreeMap::new();
    loop {
        // A new subscription does not change which jobs exist, so it does not cause a call unless none are known yet.
        let must_list = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = controller.deps.jobs_changed.notified() => true,
            () = controller.subscriptions.changed.notified() => jobs.is_empty(),
            _ = ticks.tick() => true,
        };
        if must_list {
            match controller.deps.status.jobs().await {
                Ok(listed) => jobs = listed,
                // The jobs of the last successful call stay served.
                Err(error) => tracing::warn!(%error, "failed to list the jobs to serve"),
            }
        }
        let revision = controller.subscriptions.revision();
        adjust(&controller, &group, &stop, &jobs, &mut loops).await;
        controller.set_served_revision(revision);
        let buffered = controller.buffered();
        #[expect(clippy::cast_precision_loss, reason = "the buffer is small")]
        metrics::gauge!("dueline_controller_buffered").set(buffered as f64);
    }
}

/// Starts and stops receive loops so that exactly the allowed jobs with a live subscription are served.
async fn adjust(
    controller: &Arc<ControllerService>,
    group: &TaskGroup,
    stop: &CancellationToken,
    jobs: &[ServedJob],
    loops: &mut BTreeMap<JobName, ReceiveLoop>,
) {
    let mut served = controller.subscriptions.runnable(jobs, Instant::now());
    if let Serve::Jobs(allowed) = &controller.config.serve {
        served.retain(|job, _| allowed.contains(job));
    }
    let obsolete = loops.extract_if(.., |job, _| !served.contains_key(job));
    let mut returned = Vec::new();
    for (job, receive_loop) in obsolete {
        receive_loop.stop.cancel();
        controller.pauses.remove(&job);
        returned.extend(controller.buffer().close(&job));
    }
    for job in jobs {
        let Some(weight_max) = served.get(&job.name).copied() else {
            continue;
        };
        returned.extend(
            controller
                .buffer()
                .open(&job.name, &job.handler, Instant::now()),
        );
        if let Some(receive_loop) = loops.get(&job.name) {
            receive_loop.weight_max.store(weight_max, Ordering::Relaxed);
            let heavy = controller.buffer().take_heavier(&job.name, weight_max);
            nack_too_heavy(controller, &job.name, heavy).await;
            continue;
        }
        let receive_loop = ReceiveLoop {
            stop: stop.child_token(),
            weight_max: Arc::new(AtomicU32::new(weight_max)),
        };
        let (own_stop, weight_max) = (receive_loop.stop.clone(), receive_loop.weight_max.clone());
        let receive = receive::run(controller.clone(), job.name.clone(), own_stop, weight_max);
        group.spawn_infallible("receive", receive);
        loops.insert(job.name.clone(), receive_loop);
    }
    controller.nack(returned, Duration::ZERO).await;
    // The share of each job may have grown.
    controller.demand.notify_waiters();
}
