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
    Controller, Serve,
    receive::{self, Receiving, put_back_heavy},
    visibility,
};

/// Runs until the intake is stopped, or one of the loops has failed. Buffered messages then go back to their queues,
/// visible at once, and whoever asks for work is told that there is none any more.
pub async fn run(controller: Arc<Controller>, shutdown: Shutdown) -> Result<(), ServiceError> {
    let stop = CancellationToken::new();
    let group = TaskGroup::new();
    group.spawn_infallible("serve", {
        serve(controller.clone(), group.clone(), stop.clone())
    });
    group.spawn_infallible("visibility", {
        visibility::run(controller.clone(), stop.clone())
    });
    let hand_outs = controller.hand_outs.clone();
    tokio::select! {
        biased;
        () = shutdown.intake_stopped() => {}
        _ = group.failed() => {}
        _ = hand_outs.failed() => {}
    }
    controller.stopped.cancel();
    stop.cancel();
    let ended = group.wait().await;
    // Only now is nothing put into the buffer any more.
    let jobs = controller.buffer().jobs();
    let receipts = jobs.iter().flat_map(|job| controller.buffer().close(job));
    let receipts = receipts.collect();
    controller.put_back(receipts, Duration::ZERO).await;
    ended.and(hand_outs.wait().await)
}

/// Keeps one receive loop per job that this host may serve and some worker here can run.
async fn serve(controller: Arc<Controller>, group: TaskGroup, stop: CancellationToken) {
    let mut ticks = interval(controller.config.refresh_period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known: Vec<ServedJob> = Vec::new();
    let mut loops: BTreeMap<JobName, Receiving> = BTreeMap::new();
    loop {
        // A worker that came wants what is known already; only time and new jobs are worth a question.
        let must_ask = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = controller.deps.jobs_changed.notified() => true,
            () = controller.interests.changed.notified() => known.is_empty(),
            _ = ticks.tick() => true,
        };
        if must_ask {
            match controller.deps.status.jobs().await {
                Ok(jobs) => known = jobs,
                // What was known goes on being served.
                Err(error) => tracing::warn!(%error, "failed to ask which jobs there are"),
            }
        }
        let arrivals = controller.interests.arrivals();
        adjust(&controller, &group, &stop, &known, &mut loops).await;
        controller.adjusted_to(arrivals);
        let buffered = controller.buffered();
        #[expect(clippy::cast_precision_loss, reason = "the buffer is small")]
        metrics::gauge!("dueline_controller_buffered").set(buffered as f64);
    }
}

/// Starts and stops loops until exactly the wanted jobs are served.
async fn adjust(
    controller: &Arc<Controller>,
    group: &TaskGroup,
    stop: &CancellationToken,
    known: &[ServedJob],
    loops: &mut BTreeMap<JobName, Receiving>,
) {
    let mut wanted = controller.interests.wanted(known, Instant::now());
    if let Serve::Jobs(allowed) = &controller.config.serve {
        wanted.retain(|job, _| allowed.contains(job));
    }
    let unwanted = loops.extract_if(.., |job, _| !wanted.contains_key(job));
    let mut put_back = Vec::new();
    for (job, receiving) in unwanted {
        receiving.stop.cancel();
        controller.pauses.forget(&job);
        put_back.extend(controller.buffer().close(&job));
    }
    for job in known {
        let Some(weight_max) = wanted.get(&job.name).copied() else {
            continue;
        };
        put_back.extend(controller.buffer().open(&job.name, &job.handler));
        if let Some(receiving) = loops.get(&job.name) {
            receiving.weight_max.store(weight_max, Ordering::Relaxed);
            let heavy = controller.buffer().take_heavier(&job.name, weight_max);
            put_back_heavy(controller, &job.name, heavy).await;
            continue;
        }
        let receiving = Receiving {
            stop: stop.child_token(),
            weight_max: Arc::new(AtomicU32::new(weight_max)),
        };
        let (own_stop, weight_max) = (receiving.stop.clone(), receiving.weight_max.clone());
        let receive = receive::run(controller.clone(), job.name.clone(), own_stop, weight_max);
        group.spawn_infallible("receive", receive);
        loops.insert(job.name.clone(), receiving);
    }
    controller.put_back(put_back, Duration::ZERO).await;
    // The shares of the buffer may have changed.
    controller.room.notify_waiters();
}
