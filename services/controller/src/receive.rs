//! The receive loop of a served job: receives what executors of this host will take in the next moments.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use dueline_domain::JobName;
use dueline_ports::{Delivery, QueueError};
use dueline_trace::{Began, Step, TaskSpan};
use futures_util::poll;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{ControllerService, controller::Demand};

/// How long a receive waits; the longest that SQS allows.
const RECEIVE_WAIT: Duration = Duration::from_secs(20);
/// First wait after a failed receive; doubled up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest wait after a failed receive.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How long a message that no worker here can run is hidden before it can be received again, here or on another host.
pub(crate) const TOO_HEAVY_DELAY: Duration = Duration::from_secs(30);

/// Controls the receive loop of one job.
pub(crate) struct ReceiveLoop {
    pub(crate) stop: CancellationToken,
    /// Weight of the heaviest task that a worker here can run.
    pub(crate) weight_max: Arc<AtomicU32>,
}

/// Receives until `stop` is cancelled.
pub(crate) async fn run(
    controller: Arc<ControllerService>,
    job: JobName,
    stop: CancellationToken,
    weight_max: Arc<AtomicU32>,
) {
    let mut backoff = BACKOFF_MIN;
    let (all, own) = (controller.pauses.all.clone(), controller.pauses.of(&job));
    loop {
        if all.ends_at().or_else(|| own.ends_at()).is_some() {
            // While this host cannot claim, the messages are returned for other hosts.
            let messages = controller.buffer().clear(&job);
            controller.nack(messages, Duration::ZERO).await;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                ((), ()) = async { tokio::join!(biased; all.until_over(), own.until_over()) } => {}
            }
        }
        let received = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = all.until_begun() => continue,
            () = own.until_begun() => continue,
            // Dropping a receive loses no message: those already received become visible again.
            received = receive(&controller, &job) => received,
        };
        match received {
            Ok(deliveries) => {
                backoff = BACKOFF_MIN;
                let weight_max = weight_max.load(Ordering::Relaxed);
                buffer_messages(&controller, &job, deliveries, weight_max).await;
            }
            Err(error) => {
                tracing::debug!(job.name = %job, %error, "failed to receive messages");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = sleep(backoff) => backoff = (backoff * 2).min(BACKOFF_MAX),
                }
            }
        }
    }
}

async fn receive(
    controller: &ControllerService,
    job: &JobName,
) -> Result<Vec<Delivery>, QueueError> {
    let max = wait_for_demand(controller, job).await;
    let begun_at = Instant::now();
    let mut receiving = pin!(controller.deps.queue.receive(job, max, RECEIVE_WAIT));
    let received = match poll!(receiving.as_mut()) {
        Poll::Ready(received) => received,
        Poll::Pending => {
            let _waiting = WaitingReceive::begin(controller, job);
            receiving.await
        }
    };
    if matches!(&received, Ok(deliveries) if !deliveries.is_empty()) {
        let took = begun_at.elapsed();
        controller.buffer().record_receive(job, took);
    }
    received
}

/// A receive that waits for messages. Ends when dropped.
struct WaitingReceive<'a> {
    controller: &'a ControllerService,
    job: &'a JobName,
}

impl<'a> WaitingReceive<'a> {
    fn begin(controller: &'a ControllerService, job: &'a JobName) -> Self {
        let since = Some(Instant::now());
        controller.buffer().set_receiving(job, since);
        // Polls compute again how long they have to wait.
        controller.wake_polls();
        Self { controller, job }
    }
}

impl Drop for WaitingReceive<'_> {
    fn drop(&mut self) {
        self.controller.buffer().set_receiving(self.job, None);
    }
}

/// Waits until executors have room for messages of the job, and returns unused messages to the queue meanwhile. Returns
/// how many to receive.
async fn wait_for_demand(controller: &ControllerService, job: &JobName) -> usize {
    loop {
        let mut demanded = pin!(controller.demand.notified());
        demanded.as_mut().enable();
        let Demand {
            wanted,
            unused_until,
        } = controller.demand_for(job);
        if wanted > 0 {
            return wanted.min(controller.config.receive_max);
        }
        let Some(until) = unused_until else {
            demanded.await;
            continue;
        };
        if timeout_at(until, demanded).await.is_err() {
            let unused = controller.buffer().take_unused(job, Instant::now());
            controller.nack(unused, Duration::ZERO).await;
        }
    }
}

async fn buffer_messages(
    controller: &ControllerService,
    job: &JobName,
    mut deliveries: Vec<Delivery>,
    weight_max: u32,
) {
    if deliveries.is_empty() {
        return;
    }
    trace_received(&mut deliveries);
    let is_light = |delivery: &Delivery| u32::from(delivery.task.weight.get()) <= weight_max;
    let (deliveries, heavy): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(is_light);
    let excess = controller.buffer().put(job, deliveries, Instant::now());
    controller.wake_polls();
    nack_too_heavy(controller, job, heavy).await;
    controller.nack(excess, Duration::ZERO).await;
}

/// Records that messages have come. Each traced message carries the context of its receive from here on.
fn trace_received(deliveries: &mut [Delivery]) {
    if !dueline_trace::is_on() {
        return;
    }
    for Delivery { task, .. } in deliveries {
        let trace = task.trace.as_deref();
        if let Some(span) = TaskSpan::start(Step::Receive, trace, &task.job, &task.id, Began::now())
        {
            task.trace = Some(span.traceparent());
        }
    }
}

/// Returns messages that no worker here could ever run, with a warning and a count.
pub(crate) async fn nack_too_heavy(
    controller: &ControllerService,
    job: &JobName,
    heavy: Vec<Delivery>,
) {
    if heavy.is_empty() {
        return;
    }
    for Delivery { task, .. } in &heavy {
        tracing::warn!(
            job.name = %job, task.id = %task.id, weight = task.weight.get(),
            "a task is heavier than any worker of this host can run; its message is returned for other hosts"
        );
    }
    metrics::counter!("dueline_controller_too_heavy_total", "job" => job.as_str().to_owned())
        .increment(heavy.len() as u64);
    let heavy = heavy.into_iter().map(|heavy| heavy.receipt).collect();
    controller.nack(heavy, TOO_HEAVY_DELAY).await;
}
