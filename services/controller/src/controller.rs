//! The controller's service for executors: polls, reports and registrations.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dueline_api::{
    ApiError, Assignment, Controller, ErrorKind, ErrorReason, PollRequest, Registered,
    Registration, Report, ReportAck,
};
use dueline_domain::{JobName, WorkerId};
use dueline_ports::{Delivery, ProcessKind, Receipt};
use dueline_runtime::TaskGroup;
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Deps,
    buffer::MessageBuffer,
    dispatch::{DispatchTarget, Dispatched, dispatch},
    in_flight::InFlightDispatches,
    pause::ClaimPauses,
    subscriptions::Subscriptions,
    waiting_polls::WaitingPolls,
};

/// Longest wait of a poll; longer ones are cut to this.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
/// Longest time that a poll outlasts its own wait while no receive waits at the queues of its jobs. Messages are received
/// for polls that wait, so a worker that polls with `wait = 0` would get none otherwise.
const FIRST_WAIT_MAX: Duration = Duration::from_millis(250);
/// A queue has no message if a receive has waited for this long. A queue of another process does not answer at once.
const RECEIVE_ANSWER_MAX: Duration = Duration::from_millis(100);
/// How long a deregistration waits for dispatches to its worker. Shorter than the executor's timeout of the call.
const DEREGISTER_WAIT_MAX: Duration = Duration::from_secs(2);

/// Dispatches work: buffered messages become claimed tasks of the worker that polls.
pub struct ControllerService {
    pub(crate) config: Config,
    pub(crate) deps: Deps,
    pub(crate) subscriptions: Subscriptions,
    buffer: Mutex<MessageBuffer>,
    /// Wakes polls when messages have arrived in the buffer.
    arrived: Notify,
    /// Wakes receive loops when a poll waits, and when messages have left the buffer.
    pub(crate) demand: Notify,
    /// Cancelled when no more work is dispatched.
    pub(crate) stopped: CancellationToken,
    /// The tasks that claim and dispatch.
    pub(crate) dispatches: TaskGroup,
    /// Dispatches of runs that start with their claim, by worker.
    in_flight: InFlightDispatches,
    /// Polls that wait for work.
    pub(crate) waiting: WaitingPolls,
    /// Pauses after failed claims.
    pub(crate) pauses: ClaimPauses,
    /// The [`Subscriptions::revision`] that the receive loops take into account.
    served_revision: AtomicU64,
}

impl ControllerService {
    /// A controller with an empty buffer; [`crate::run`] fills it.
    pub fn new(config: Config, deps: Deps) -> Arc<Self> {
        let config = config.clamped();
        Arc::new(Self {
            buffer: Mutex::new(MessageBuffer::new(config.buffer_max)),
            config,
            deps,
            subscriptions: Subscriptions::default(),
            arrived: Notify::new(),
            demand: Notify::new(),
            stopped: CancellationToken::new(),
            dispatches: TaskGroup::new(),
            in_flight: InFlightDispatches::default(),
            waiting: WaitingPolls::default(),
            pauses: ClaimPauses::default(),
            served_revision: AtomicU64::new(0),
        })
    }

    /// How many messages wait for an executor.
    pub fn buffered(&self) -> usize {
        self.buffer().len()
    }

    pub(crate) fn buffer(&self) -> MutexGuard<'_, MessageBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all waiting polls.
    pub(crate) fn wake_polls(&self) {
        self.arrived.notify_waiters();
    }

    /// Records that receive loops run for the subscriptions up to `revision`, as far as their jobs exist.
    pub(crate) fn set_served_revision(&self, revision: u64) {
        if self.served_revision.swap(revision, Ordering::AcqRel) != revision {
            self.wake_polls();
        }
    }

    /// What executors want of the job now.
    pub(crate) fn demand_for(&self, job: &JobName) -> Demand {
        let mut buffer = self.buffer();
        let polled = buffer
            .handler(job)
            .map(|handler| self.waiting.room(job, handler));
        let polled = polled.unwrap_or_default();
        let wanted = buffer.wanted(job, polled, Instant::now());
        let is_polled = polled.tasks > 0;
        let unused_until = (!is_polled).then(|| buffer.unused_until(job)).flatten();
        Demand {
            wanted,
            unused_until,
        }
    }

    /// When a poll may end without work, as far as is known now.
    fn may_end_at(&self, poll: &PollRequest, deadline: PollDeadline) -> Instant {
        let (ends_at, not_before) = (deadline.ends_at, deadline.not_before);
        if ends_at >= not_before {
            return ends_at;
        }
        if self.served_revision.load(Ordering::Acquire) < deadline.revision {
            return not_before;
        }
        let buffer = self.buffer();
        let answers = buffer.receiving_since(poll);
        let answers = answers.map(|since| since.map_or(not_before, |at| at + RECEIVE_ANSWER_MAX));
        let answered_at = answers.max().unwrap_or(ends_at);
        ends_at.max(answered_at.min(not_before))
    }

    /// Returns messages to their queues, visible after `delay`.
    pub(crate) async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) {
        if receipts.is_empty() {
            return;
        }
        if let Err(error) = self.deps.queue.nack(receipts, delay).await {
            tracing::warn!(
                %error,
                "failed to return messages; they become visible when their visibility timeouts end"
            );
        }
    }

    fn pop(&self, poll: &PollRequest) -> Vec<Delivery> {
        let popped = self.buffer().pop(poll);
        if !popped.is_empty() {
            self.demand.notify_waiters();
        }
        popped
    }

    /// Waits for the first work for this poll. Returns no messages when the poll's deadline has passed.
    async fn wait_for_work(
        &self,
        poll: &PollRequest,
        deadline: PollDeadline,
    ) -> Result<PolledWork, ApiError> {
        loop {
            // Enabled before the buffer is read, so that a message arriving between read and wait is not missed.
            let mut arrived = pin!(self.arrived.notified());
            arrived.as_mut().enable();
            if self.stopped.is_cancelled() {
                return Err(shutting_down());
            }
            // Computed before the buffer is read: messages are buffered after their receive has ended.
            let ends_at = self.may_end_at(poll, deadline);
            let pause_ends_at = self.pauses.all.ends_at();
            let popped = match pause_ends_at {
                Some(_) => Vec::new(),
                None => self.pop(poll),
            };
            if !popped.is_empty() || Instant::now() >= ends_at {
                return Ok(PolledWork::Messages(popped));
            }
            // A buffered task that waits for free weight comes before new tasks: the worker is not reserved for those.
            let has_message = self.buffer().has_message_for(poll);
            let mut waiting = self.waiting.add(poll, !has_message);
            self.demand.notify_waiters();
            let wakes_at = pause_ends_at.map_or(ends_at, |at| at.min(ends_at));
            tokio::select! {
                biased;
                // Reserved for a task that is being stored: the poll waits for that write alone.
                Ok(delivery) = &mut waiting.reserved => {
                    if let Ok(dispatched) = delivery.await {
                        return Ok(PolledWork::Dispatched(dispatched));
                    }
                }
                () = self.stopped.cancelled() => {}
                _ = timeout_at(wakes_at, arrived) => {}
            }
            drop(waiting);
            // A receive loop that waits while this poll does returns unused messages from now on.
            self.demand.notify_waiters();
        }
    }
}

/// What executors want of one job.
pub(crate) struct Demand {
    /// How many messages to receive now.
    pub(crate) wanted: usize,
    /// When the oldest buffered message is to be returned if no poll comes for it; `None` while a poll waits.
    pub(crate) unused_until: Option<Instant>,
}

/// How long a poll waits.
#[derive(Clone, Copy)]
struct PollDeadline {
    ends_at: Instant,
    /// While the queues of the poll's jobs have not answered yet, the poll does not end before this.
    not_before: Instant,
    /// The [`Subscriptions::revision`] that includes this poll.
    revision: u64,
}

/// Work for a poll.
enum PolledWork {
    /// Messages whose tasks are still to be claimed.
    Messages(Vec<Delivery>),
    /// A task that was claimed with the write that stored it.
    Dispatched(Dispatched),
}

#[async_trait]
impl Controller for ControllerService {
    /// Cancel safe: claims run in a task of their own, and tasks that do not reach the caller are abandoned at once.
    async fn poll(&self, poll: PollRequest) -> Result<Vec<Assignment>, ApiError> {
        if poll.tasks_max == 0 || poll.weight_max == 0 {
            let message =
                "tasks_max and weight_max must be greater than 0; poll when a slot is free";
            return Err(ApiError::invalid("tasks_max", ErrorReason::NoRoom, message));
        }
        let _active = self.subscriptions.begin_poll(&poll);
        let now = Instant::now();
        let deadline = PollDeadline {
            ends_at: now + poll.wait.min(WAIT_MAX),
            not_before: now + FIRST_WAIT_MAX,
            revision: self.subscriptions.revision(),
        };
        loop {
            let deliveries = match self.wait_for_work(&poll, deadline).await? {
                PolledWork::Dispatched(dispatched) => return Ok(dispatched.take()),
                PolledWork::Messages(deliveries) => deliveries,
            };
            if deliveries.is_empty() {
                return Ok(Vec::new());
            }
            let target = DispatchTarget {
                worker: poll.worker.clone(),
                start: poll.start,
                polled_at: now,
                in_flight: poll.start.then(|| self.in_flight.begin(&poll.worker)),
            };
            let dispatched = dispatch(
                &self.deps,
                &self.dispatches,
                &self.pauses,
                target,
                deliveries,
            );
            let Ok(dispatched) = dispatched.await else {
                let message = "the claim ended without an answer; poll again";
                return Err(ApiError::new(
                    ErrorKind::Internal,
                    ErrorReason::ClaimLost,
                    message,
                ));
            };
            let assignments = dispatched.take();
            if !assignments.is_empty() {
                return Ok(assignments);
            }
        }
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        self.deps.status.report(reports).await
    }

    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError> {
        let registered = self.deps.status.register_worker(worker.clone()).await?;
        if worker.kind == ProcessKind::Executor {
            self.subscriptions.register(&worker, registered.interval);
        }
        Ok(registered)
    }

    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        self.subscriptions.deregister(worker);
        let settled = self.in_flight.settled(worker);
        if timeout(DEREGISTER_WAIT_MAX, settled).await.is_err() {
            tracing::warn!(
                worker.id = %worker,
                "a worker deregisters while started runs are still being dispatched to it"
            );
        }
        self.deps.status.deregister_worker(worker).await
    }
}

fn shutting_down() -> ApiError {
    let message = "the controller is shutting down";
    ApiError::new(ErrorKind::Unavailable, ErrorReason::ShuttingDown, message)
}
