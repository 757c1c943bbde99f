//! The queue of one job: its messages behind a lock, and the receivers that wait for them.

use std::{
    pin::pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Depth, QueueError, RefillDemand};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::{config::LocalQueueConfig, messages::JobMessages};

/// Longest wait or delay; longer ones are cut to this, because an instant cannot lie arbitrarily far ahead.
const DELAY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// State that all queues of a process share.
#[derive(Debug)]
pub(crate) struct SharedQueueState {
    pub(crate) config: LocalQueueConfig,
    /// Next number of a receipt. No number is used twice, not even by a queue that was removed and made again.
    receipts: AtomicU64,
    /// Notified when a queue may have a refill demand to report.
    pub(crate) demand_changed: Notify,
}

impl SharedQueueState {
    pub(crate) fn new(config: LocalQueueConfig) -> Self {
        Self {
            config,
            receipts: AtomicU64::new(1),
            demand_changed: Notify::new(),
        }
    }

    /// Reserves `count` numbers of receipts and answers the first.
    fn reserve_receipts(&self, count: usize) -> u64 {
        self.receipts.fetch_add(count as u64, Ordering::Relaxed)
    }
}

/// The queue of one job.
#[derive(Debug)]
pub(crate) struct JobQueue {
    job: JobName,
    /// `None` once the queue was removed.
    messages: Mutex<Option<JobMessages>>,
    /// Wakes one waiting receiver per arrival. A receiver that leaves messages behind wakes the next.
    arrived: Notify,
}

/// A queue whose messages are locked.
pub(crate) struct LockedJobQueue<'a> {
    queue: &'a JobQueue,
    shared: &'a SharedQueueState,
    guard: MutexGuard<'a, Option<JobMessages>>,
}

impl JobQueue {
    pub(crate) fn new(job: JobName, config: LocalQueueConfig) -> Self {
        Self {
            job,
            messages: Mutex::new(Some(JobMessages::new(config))),
            arrived: Notify::new(),
        }
    }

    pub(crate) fn lock<'a>(&'a self, shared: &'a SharedQueueState) -> LockedJobQueue<'a> {
        LockedJobQueue {
            queue: self,
            shared,
            guard: self.messages.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// See [`dueline_ports::TaskQueue::receive`]. Cancel safe: messages are received in the last step only.
    pub(crate) async fn receive(
        &self,
        shared: &SharedQueueState,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let ends_at = Instant::now() + wait.min(DELAY_MAX);
        loop {
            let (deliveries, _) = self.lock(shared).receive(max)?;
            if !deliveries.is_empty() || max == 0 || Instant::now() >= ends_at {
                return Ok(deliveries);
            }
            // Register for notifications before the second check, so that a message that arrives between check and
            // wait is not missed.
            let mut arrived = pin!(self.arrived.notified());
            arrived.as_mut().enable();
            let (deliveries, next_deadline) = self.lock(shared).receive(max)?;
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            // A message that another receiver takes from now on stays hidden for at least one visibility timeout, so
            // its deadline needs no notification.
            let recheck_at = Instant::now() + shared.config.visibility_timeout;
            let until = next_deadline.unwrap_or(recheck_at).min(recheck_at);
            let _ = timeout_at(until.min(ends_at), arrived).await;
        }
    }

    /// Removes the queue with its messages, and wakes all waiting receivers.
    pub(crate) fn remove(&self, shared: &SharedQueueState) {
        self.lock(shared).guard.take();
        self.arrived.notify_waiters();
    }
}

impl LockedJobQueue<'_> {
    fn messages(&mut self) -> Result<&mut JobMessages, QueueError> {
        let job = &self.queue.job;
        self.guard
            .as_mut()
            .ok_or_else(|| QueueError::NotFound(job.clone()))
    }

    pub(crate) fn add(&mut self, task: TaskRef) -> Result<(), QueueError> {
        if self.messages()?.add(task) {
            Ok(())
        } else {
            Err(QueueError::Full(self.queue.job.clone()))
        }
    }

    /// Receives up to `max` messages, and answers when the next hidden one becomes visible.
    fn receive(mut self, max: usize) -> Result<(Vec<Delivery>, Option<Instant>), QueueError> {
        let now = Instant::now();
        let shared = self.shared;
        let messages = self.messages()?;
        messages.expire(now);
        let count = max.min(usize::try_from(messages.depth().visible).unwrap_or(max));
        let mut deliveries = Vec::with_capacity(count);
        if count > 0 {
            let number = shared.reserve_receipts(count);
            messages.receive(count, now, number, &mut deliveries);
        }
        let next_deadline = messages.next_deadline();
        self.unlock_and_notify();
        Ok((deliveries, next_deadline))
    }

    pub(crate) fn delete(&mut self, number: u64) {
        if let Ok(messages) = self.messages() {
            messages.delete(number);
        }
    }

    pub(crate) fn nack(&mut self, number: u64, delay: Duration) {
        let delay_number = self.shared.reserve_receipts(1);
        if let Ok(messages) = self.messages() {
            messages.nack(number, delay.min(DELAY_MAX), delay_number, Instant::now());
        }
        if !delay.is_zero() && delay < self.shared.config.visibility_timeout {
            // The message becomes visible before the waiting receivers would check again: they compute a new deadline.
            self.queue.arrived.notify_waiters();
        }
    }

    pub(crate) fn extend(&mut self, number: u64) {
        if let Ok(messages) = self.messages() {
            messages.extend(number, Instant::now());
        }
    }

    pub(crate) fn depth(mut self) -> Result<Depth, QueueError> {
        let messages = self.messages()?;
        messages.expire(Instant::now());
        let depth = messages.depth();
        self.unlock_and_notify();
        Ok(depth)
    }

    /// The refill demand of this queue, if it has one to report. A reported demand is not reported again until it is
    /// refilled or times out.
    pub(crate) fn report_demand(&mut self, now: Instant) -> Option<RefillDemand> {
        let job = self.queue.job.clone();
        let messages = self.messages().ok()?;
        if !messages.refill.may_report(now) || !messages.is_low() {
            return None;
        }
        Some(RefillDemand {
            job,
            room: messages.room(),
            epoch: messages.refill.report(now),
        })
    }

    /// When the demand of this queue may be reported again, if it lacks messages but may not report now.
    pub(crate) fn quiet_until(&mut self, now: Instant) -> Option<Instant> {
        self.messages().ok()?.refill.quiet_until(now)
    }

    pub(crate) fn refilled(mut self, epoch: u64, complete: bool) {
        if let Ok(messages) = self.messages() {
            messages.refill.refilled(epoch, complete, Instant::now());
            if messages.refill.is_lacking() {
                // Other callers of `refill_demand` may be waiting for the old deadline.
                self.shared.demand_changed.notify_waiters();
            }
        }
    }

    /// Unlocks the queue. Wakes a receiver when messages are visible, and the callers of `refill_demand` when there is
    /// a demand to report.
    pub(crate) fn unlock_and_notify(self) {
        let Some(messages) = self.guard.as_ref() else {
            return;
        };
        let visible = messages.has_visible();
        let has_demand = messages.refill.is_lacking()
            && messages.is_low()
            && messages.refill.may_report(Instant::now());
        drop(self.guard);
        if visible {
            self.queue.arrived.notify_one();
        }
        if has_demand {
            self.shared.demand_changed.notify_waiters();
        }
    }
}
