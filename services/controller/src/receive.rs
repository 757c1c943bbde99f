//! One loop per served job: takes messages as there is room for them.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use dueline_domain::JobName;
use dueline_ports::{Delivery, QueueError};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::Controller;

/// How long one receive waits; the longest that SQS allows.
const LONG_POLL: Duration = Duration::from_secs(20);
/// How long the first receive of a job waits: workers that cannot wait themselves wait for its answer.
const FIRST_POLL: Duration = Duration::from_millis(100);
/// First and longest wait after a failed receive.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A message that no worker here can run comes back after this; meanwhile it is another host's.
pub(crate) const TOO_HEAVY_DELAY: Duration = Duration::from_secs(30);

/// The loop of one job, as others see it.
pub(crate) struct Receiving {
    pub(crate) stop: CancellationToken,
    /// Weight of the heaviest task that some worker here could run.
    pub(crate) weight_max: Arc<AtomicU32>,
}

/// Receives until told to stop.
pub(crate) async fn run(
    controller: Arc<Controller>,
    job: JobName,
    stop: CancellationToken,
    weight_max: Arc<AtomicU32>,
) {
    let (mut backoff, mut wait) = (BACKOFF.0, FIRST_POLL);
    let (all, own) = (controller.pauses.all.clone(), controller.pauses.of(&job));
    loop {
        if all.ends_at().or_else(|| own.ends_at()).is_some() {
            // While nothing can be claimed from here, the messages are left to others.
            let held = controller.buffer().clear(&job);
            controller.put_back(held, Duration::ZERO).await;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                ((), ()) = async { tokio::join!(biased; all.is_over(), own.is_over()) } => {}
            }
        }
        let received = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = all.begins() => continue,
            () = own.begins() => continue,
            // Dropping a receive loses nothing: what it had taken becomes visible again.
            received = receive(&controller, &job, wait) => received,
        };
        match received {
            Ok(deliveries) => {
                (backoff, wait) = (BACKOFF.0, LONG_POLL);
                let weight_max = weight_max.load(Ordering::Relaxed);
                take_in(&controller, &job, deliveries, weight_max).await;
                controller.received(&job);
            }
            Err(error) => {
                controller.received(&job);
                tracing::debug!(job.name = %job, %error, "failed to receive messages");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = sleep(backoff) => backoff = (backoff * 2).min(BACKOFF.1),
                }
            }
        }
    }
}

async fn receive(
    controller: &Controller,
    job: &JobName,
    wait: Duration,
) -> Result<Vec<Delivery>, QueueError> {
    let max = wait_for_room(controller, job).await;
    controller.deps.queue.receive(job, max, wait).await
}

/// Room for enough messages to be worth a receive.
async fn wait_for_room(controller: &Controller, job: &JobName) -> usize {
    let receive_max = controller.config.receive_max;
    loop {
        let mut room_came = pin!(controller.room.notified());
        room_came.as_mut().enable();
        let (room, share) = {
            let buffer = controller.buffer();
            (buffer.room(job), buffer.share())
        };
        if room >= (share / 4).clamp(1, receive_max) {
            return room.min(receive_max);
        }
        room_came.await;
    }
}

async fn take_in(
    controller: &Controller,
    job: &JobName,
    deliveries: Vec<Delivery>,
    weight_max: u32,
) {
    if deliveries.is_empty() {
        return;
    }
    let is_light = |delivery: &Delivery| u32::from(delivery.task.weight.get()) <= weight_max;
    let (deliveries, heavy): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(is_light);
    let excess = controller.buffer().put(job, deliveries, Instant::now());
    controller.wake_askers();
    put_back_heavy(controller, job, heavy).await;
    controller.put_back(excess, Duration::ZERO).await;
}

/// Returns messages that no worker here could ever run, and says so.
pub(crate) async fn put_back_heavy(controller: &Controller, job: &JobName, heavy: Vec<Delivery>) {
    if heavy.is_empty() {
        return;
    }
    for Delivery { task, .. } in &heavy {
        tracing::warn!(
            job.name = %job, task.id = %task.id, weight = task.weight.get(),
            "a task is heavier than any worker of this host can run"
        );
    }
    metrics::counter!("dueline_controller_too_heavy_total", "job" => job.as_str().to_owned())
        .increment(heavy.len() as u64);
    let heavy = heavy.into_iter().map(|heavy| heavy.receipt).collect();
    controller.put_back(heavy, TOO_HEAVY_DELAY).await;
}
