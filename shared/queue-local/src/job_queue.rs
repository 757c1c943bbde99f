//! One job's queue: its messages behind a lock, and the receivers that wait for them.

use std::{
    pin::pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Depth, QueueError, Starving};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::{config::LocalQueueConfig, messages::Messages};

/// Longest wait or delay that is taken literally; an instant cannot lie arbitrarily far ahead.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// What all queues of a process share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) config: LocalQueueConfig,
    /// Numbers of receipts: never used twice, not even by a queue that was removed and made again.
    receipts: AtomicU64,
    /// Woken when a queue may have become hungry.
    pub(crate) hungry: Notify,
}

impl Common {
    pub(crate) fn new(config: LocalQueueConfig) -> Self {
        Self {
            config,
            receipts: AtomicU64::new(1),
            hungry: Notify::new(),
        }
    }

    fn numbers(&self, count: usize) -> u64 {
        self.receipts.fetch_add(count as u64, Ordering::Relaxed)
    }
}

/// The queue of one job.
#[derive(Debug)]
pub(crate) struct JobQueue {
    job: JobName,
    /// `None` once the queue was removed.
    messages: Mutex<Option<Messages>>,
    /// One waiting receiver is woken per arrival; it wakes the next if it leaves something.
    arrived: Notify,
}

/// The messages, locked.
pub(crate) struct Locked<'a> {
    queue: &'a JobQueue,
    common: &'a Common,
    guard: MutexGuard<'a, Option<Messages>>,
}

impl JobQueue {
    pub(crate) fn new(job: JobName, config: LocalQueueConfig) -> Self {
        Self {
            job,
            messages: Mutex::new(Some(Messages::new(config))),
            arrived: Notify::new(),
        }
    }

    pub(crate) fn lock<'a>(&'a self, common: &'a Common) -> Locked<'a> {
        Locked {
            queue: self,
            common,
            guard: self.messages.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// See [`dueline_ports::TaskQueue::receive`]. Cancel safe: messages are taken in the last step only.
    pub(crate) async fn receive(
        &self,
        common: &Common,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let ends_at = Instant::now() + wait.min(LONGEST);
        loop {
            let (found, _) = self.lock(common).take(max)?;
            if !found.is_empty() || max == 0 || Instant::now() >= ends_at {
                return Ok(found);
            }
            // Registered before the second look, so that nothing can arrive unseen between look and wait.
            let mut arrived = pin!(self.arrived.notified());
            arrived.as_mut().enable();
            let (found, next_deadline) = self.lock(common).take(max)?;
            if !found.is_empty() {
                return Ok(found);
            }
            // What others receive from now on comes back no sooner than this, so nobody needs to tell us.
            let look_again = Instant::now() + common.config.visibility_timeout;
            let until = next_deadline.unwrap_or(look_again).min(look_again);
            let _ = timeout_at(until.min(ends_at), arrived).await;
        }
    }

    /// The queue is gone: everyone who waits for it is told.
    pub(crate) fn remove(&self, common: &Common) {
        self.lock(common).guard.take();
        self.arrived.notify_waiters();
    }
}

impl Locked<'_> {
    fn messages(&mut self) -> Result<&mut Messages, QueueError> {
        let job = &self.queue.job;
        self.guard
            .as_mut()
            .ok_or_else(|| QueueError::NotFound(job.clone()))
    }

    pub(crate) fn offer(&mut self, task: TaskRef) -> Result<(), QueueError> {
        if self.messages()?.offer(task) {
            Ok(())
        } else {
            Err(QueueError::Full(self.queue.job.clone()))
        }
    }

    /// Up to `max` messages, and when the next hidden one comes back.
    fn take(mut self, max: usize) -> Result<(Vec<Delivery>, Option<Instant>), QueueError> {
        let now = Instant::now();
        let common = self.common;
        let messages = self.messages()?;
        messages.expire(now);
        let count = max.min(usize::try_from(messages.depth().visible).unwrap_or(max));
        let mut found = Vec::with_capacity(count);
        if count > 0 {
            messages.take(count, now, common.numbers(count), &mut found);
        }
        let next_deadline = messages.next_deadline();
        self.finish();
        Ok((found, next_deadline))
    }

    pub(crate) fn delete(&mut self, number: u64) {
        if let Ok(messages) = self.messages() {
            messages.delete(number);
        }
    }

    pub(crate) fn put_back(&mut self, number: u64, delay: Duration) {
        let parked = self.common.numbers(1);
        if let Ok(messages) = self.messages() {
            messages.put_back(number, delay.min(LONGEST), parked, Instant::now());
        }
        if !delay.is_zero() && delay < self.common.config.visibility_timeout {
            // It comes back sooner than the waiting receivers expect anything to: they plan anew.
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
        self.finish();
        Ok(depth)
    }

    /// What to tell of this queue if it is hungry; it is then not told again until refilled, or for a while.
    pub(crate) fn tell_hunger(&mut self, now: Instant) -> Option<Starving> {
        let job = self.queue.job.clone();
        let messages = self.messages().ok()?;
        if !messages.hunger.may_tell(now) || !messages.wants_refill() {
            return None;
        }
        Some(Starving {
            job,
            room: messages.room(),
            epoch: messages.hunger.tell(now),
        })
    }

    /// When this queue may be told of again, if it is hungry but quiet.
    pub(crate) fn quiet_until(&mut self, now: Instant) -> Option<Instant> {
        self.messages().ok()?.hunger.quiet_until(now)
    }

    pub(crate) fn refilled(mut self, epoch: u64, complete: bool) {
        if let Ok(messages) = self.messages() {
            messages.hunger.refilled(epoch, complete, Instant::now());
            if messages.hunger.is_lacking() {
                // Others may wait by an older plan.
                self.common.hungry.notify_waiters();
            }
        }
    }

    /// Ends a step that may have changed something: wakes whoever should look now.
    pub(crate) fn finish(self) {
        let Some(messages) = self.guard.as_ref() else {
            return;
        };
        let visible = messages.has_visible();
        let hungry = messages.hunger.is_lacking()
            && messages.wants_refill()
            && messages.hunger.may_tell(Instant::now());
        drop(self.guard);
        if visible {
            self.queue.arrived.notify_one();
        }
        if hungry {
            self.common.hungry.notify_waiters();
        }
    }
}
