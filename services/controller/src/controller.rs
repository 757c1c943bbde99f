//! The controller as its executors see it.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use dueline_api::{
    Alive, ApiError, Assignment, ErrorKind, NextWork, Registration, Report, Reported, Work,
};
use dueline_domain::{JobName, WorkerId};
use dueline_ports::{Delivery, Receipt};
use dueline_runtime::TaskGroup;
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Deps,
    buffer::Buffer,
    dispatch::Waiting,
    hand_out::{Handed, Taker, hand_out},
    interest::Interests,
    pause::Pauses,
    under_way::UnderWay,
};

/// Longest wait for work that is taken literally.
const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(3_600);
/// A question that wants something which was not served before waits at least this long for the first messages: the
/// interest of a worker that never waits and asks but rarely would else be forgotten each time before they come.
const FIRST_WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(250);
/// How long a worker that leaves waits for what is on its way to it. Shorter than it waits for its farewell.
const LEAVE_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Hands out work: buffered messages become claimed tasks of the worker that asks.
pub struct Controller {
    pub(crate) config: Config,
    pub(crate) deps: Deps,
    pub(crate) interests: Interests,
    buffer: Mutex<Buffer>,
    /// Woken when messages arrived in the buffer.
    arrived: Notify,
    /// Woken when messages left the buffer.
    pub(crate) room: Notify,
    /// No more work is handed out.
    pub(crate) stopped: CancellationToken,
    /// Hand-outs under way.
    pub(crate) hand_outs: TaskGroup,
    /// Those of runs that begin with their claim, by worker.
    under_way: UnderWay,
    /// Questions that wait.
    pub(crate) waiting: Waiting,
    /// Begin when nothing could be claimed.
    pub(crate) pauses: Pauses,
    /// The workers whose wishes have been looked at, as counted by [`Interests::arrivals`].
    adjusted_to: AtomicU64,
}

impl Controller {
    /// A controller with an empty buffer; [`crate::run`] fills it.
    pub fn new(config: Config, deps: Deps) -> Arc<Self> {
        let config = config.clamped();
        Arc::new(Self {
            buffer: Mutex::new(Buffer::new(config.buffer_max)),
            config,
            deps,
            interests: Interests::default(),
            arrived: Notify::new(),
            room: Notify::new(),
            stopped: CancellationToken::new(),
            hand_outs: TaskGroup::new(),
            under_way: UnderWay::default(),
            waiting: Waiting::default(),
            pauses: Pauses::default(),
            adjusted_to: AtomicU64::new(0),
        })
    }

    /// How many messages wait for an executor.
    pub fn buffered(&self) -> usize {
        self.buffer().len()
    }

    pub(crate) fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages have come into the buffer.
    pub(crate) fn wake_askers(&self) {
        self.arrived.notify_waiters();
    }

    /// What the first `arrivals` workers want is served, as far as it can be.
    pub(crate) fn adjusted_to(&self, arrivals: u64) {
        if self.adjusted_to.swap(arrivals, Ordering::AcqRel) != arrivals {
            self.wake_askers();
        }
    }

    /// A receive for the job has come back.
    pub(crate) fn received(&self, job: &JobName) {
        if self.buffer().received(job) {
            self.wake_askers();
        }
    }

    /// Whether all that the worker wants was looked for in its queues at least once.
    fn is_served(&self, ask: &NextWork, arrivals: u64) -> bool {
        self.adjusted_to.load(Ordering::Acquire) >= arrivals && self.buffer().has_received_for(ask)
    }

    /// Gives messages back to their queues, visible after `delay`.
    pub(crate) async fn put_back(&self, receipts: Vec<Receipt>, delay: std::time::Duration) {
        if receipts.is_empty() {
            return;
        }
        if let Err(error) = self.deps.queue.nack(receipts, delay).await {
            tracing::warn!(%error, "failed to return messages; they come back by their timeout");
        }
    }

    fn pop(&self, ask: &NextWork) -> Vec<Delivery> {
        let popped = self.buffer().pop(ask);
        if !popped.is_empty() {
            self.room.notify_waiters();
        }
        popped
    }

    /// What comes first for this question; no messages when its time is over.
    async fn wait_for_work(&self, ask: &NextWork, times: Times) -> Result<Found, ApiError> {
        loop {
            // Registered before the look, so that nothing arrives unseen between look and wait.
            let mut arrived = pin!(self.arrived.notified());
            arrived.as_mut().enable();
            if self.stopped.is_cancelled() {
                return Err(shutting_down());
            }
            // Looked at before the buffer: what the first receive brings is there before it counts as come back.
            let ends_at = if self.is_served(ask, times.arrivals) {
                times.ends_at
            } else {
                times.ends_at.max(times.no_sooner)
            };
            let pause_ends_at = self.pauses.all.ends_at();
            let popped = match pause_ends_at {
                Some(_) => Vec::new(),
                None => self.pop(ask),
            };
            if !popped.is_empty() || Instant::now() >= ends_at {
                return Ok(Found::Messages(popped));
            }
            // A task that waits for weight comes before new ones: this worker is not set aside for any of them.
            let holds = self.buffer().holds_for(ask);
            let mut place = (!holds).then(|| self.waiting.wait(ask));
            let offered = async {
                match &mut place {
                    Some(place) => (&mut place.offered).await,
                    None => std::future::pending().await,
                }
            };
            let wakes_at = pause_ends_at.map_or(ends_at, |at| at.min(ends_at));
            tokio::select! {
                biased;
                // Set aside for a task that is being stored: nothing else counts until that has come to an end.
                Ok(offer) = offered => {
                    if let Ok(handed) = offer.await {
                        return Ok(Found::Handed(handed));
                    }
                }
                () = self.stopped.cancelled() => {}
                _ = timeout_at(wakes_at, arrived) => {}
            }
        }
    }
}

/// How long a question waits.
#[derive(Clone, Copy)]
struct Times {
    ends_at: Instant,
    /// It does not end before this while something that is wanted was not looked for yet.
    no_sooner: Instant,
    /// The count of [`Interests::arrivals`] with this question.
    arrivals: u64,
}

/// Work for a question.
enum Found {
    /// Messages whose tasks are still to be claimed.
    Messages(Vec<Delivery>),
    /// A task that was claimed with the write that stored it.
    Handed(Handed),
}

#[async_trait]
impl Work for Controller {
    /// Cancel safe: claims are made in a task of their own, and tasks that nobody took over are given back at once.
    async fn next(&self, ask: NextWork) -> Result<Vec<Assignment>, ApiError> {
        if ask.tasks_max == 0 || ask.weight_max == 0 {
            let message = "a worker without room must not ask for work";
            return Err(ApiError::invalid("tasks_max", "no_room", message));
        }
        let _asking = self.interests.ask(&ask);
        let now = Instant::now();
        let times = Times {
            ends_at: now + ask.wait.min(WAIT_MAX),
            no_sooner: now + FIRST_WAIT_MAX,
            arrivals: self.interests.arrivals(),
        };
        loop {
            let deliveries = match self.wait_for_work(&ask, times).await? {
                Found::Handed(handed) => return Ok(handed.take()),
                Found::Messages(deliveries) => deliveries,
            };
            if deliveries.is_empty() {
                return Ok(Vec::new());
            }
            let taker = Taker {
                worker: ask.worker.clone(),
                start: ask.start,
                asked: now,
                hand_out: ask.start.then(|| self.under_way.begin(&ask.worker)),
            };
            let answered = hand_out(&self.deps, &self.hand_outs, &self.pauses, taker, deliveries);
            let Ok(handed) = answered.await else {
                let message = "the claim ended without an answer";
                return Err(ApiError::new(ErrorKind::Internal, "claim_lost", message));
            };
            let assignments = handed.take();
            if !assignments.is_empty() {
                return Ok(assignments);
            }
        }
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<Reported, ApiError>> {
        self.deps.status.report(reports).await
    }

    async fn alive(&self, worker: Registration) -> Result<Alive, ApiError> {
        let alive = self.deps.status.alive(worker.clone()).await?;
        self.interests.alive(&worker, alive.interval);
        Ok(alive)
    }

    async fn leave(&self, worker: &WorkerId) -> Result<(), ApiError> {
        self.interests.leave(worker);
        let settled = self.under_way.settled(worker);
        if timeout(LEAVE_WAIT_MAX, settled).await.is_err() {
            tracing::warn!(worker.id = %worker, "a worker leaves while runs are on their way to it");
        }
        self.deps.status.leave(worker).await
    }
}

fn shutting_down() -> ApiError {
    let message = "the controller is shutting down";
    ApiError::new(ErrorKind::Unavailable, "shutting_down", message)
}
