//! Signals within one process. They shorten the waits between polls; correctness does not depend on them.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
};

use dueline_domain::{JobName, TaskId, Timestamp};
use tokio::sync::Notify;

/// Wakes the consumer when a task has a trigger time before the next planned scan.
///
/// The announcer writes the trigger time and then reads the planned scan; the consumer does the opposite. At least one
/// of them must read what the other wrote, which needs sequentially consistent operations.
#[derive(Debug)]
pub struct DueSignal {
    /// Earliest trigger time announced since the last `take`, in milliseconds.
    earliest: AtomicI64,
    /// Time of the next planned scan, in milliseconds.
    planned: AtomicI64,
    notify: Notify,
    /// Jobs whose tasks wait for the end of another one, because the job limits how many run at once.
    awaiting_place: Mutex<HashSet<JobName>>,
    /// Whether there are such jobs.
    any_awaiting: AtomicBool,
}

impl Default for DueSignal {
    fn default() -> Self {
        Self {
            earliest: AtomicI64::new(i64::MAX),
            planned: AtomicI64::new(i64::MAX),
            notify: Notify::new(),
            awaiting_place: Mutex::default(),
            any_awaiting: AtomicBool::new(false),
        }
    }
}

impl DueSignal {
    /// Announces that a task now has this trigger time.
    pub fn announce(&self, at: Timestamp) {
        self.earliest.fetch_min(at.millis(), Ordering::SeqCst);
        if at.millis() < self.planned.load(Ordering::SeqCst) {
            self.notify.notify_one();
        }
    }

    /// Takes the earliest time announced since the last call. The consumer calls this *before* it reads the store, so
    /// that an announcement during the read is kept for the next call.
    pub fn take(&self) -> Option<Timestamp> {
        let millis = self.earliest.swap(i64::MAX, Ordering::SeqCst);
        (millis != i64::MAX).then(|| Timestamp::clamped(millis))
    }

    /// Waits until a trigger time before `planned` is announced. Cancel safe.
    pub async fn due_before(&self, planned: Timestamp) {
        self.planned.store(planned.millis(), Ordering::SeqCst);
        loop {
            if self.earliest.load(Ordering::SeqCst) < planned.millis() {
                return;
            }
            self.notify.notified().await;
        }
    }

    /// Asks to be woken when a task of this job ends. The consumer calls this *before* it reads how many run.
    pub fn await_place(&self, job: &JobName) {
        let mut awaiting = self.awaiting();
        if !awaiting.contains(job) {
            awaiting.insert(job.clone());
        }
        self.any_awaiting.store(true, Ordering::SeqCst);
    }

    /// Whether no task of this job has ended since [`Self::await_place`].
    pub fn awaits_place(&self, job: &JobName) -> bool {
        self.awaiting().contains(job)
    }

    /// No longer asks for the end of a task of this job.
    pub fn forget_place(&self, job: &JobName) {
        let mut awaiting = self.awaiting();
        awaiting.remove(job);
        self.any_awaiting
            .store(!awaiting.is_empty(), Ordering::SeqCst);
    }

    /// A task of this job runs no more. Wakes the consumer if it awaits that; costs one atomic load if it awaits none.
    pub fn place_freed(&self, job: &JobName) {
        if !self.any_awaiting.load(Ordering::SeqCst) || !self.awaits_place(job) {
            return;
        }
        self.forget_place(job);
        self.announce(Timestamp::EPOCH);
    }

    fn awaiting(&self) -> MutexGuard<'_, HashSet<JobName>> {
        self.awaiting_place
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the calls that wait for the end of a task.
#[derive(Debug, Default)]
pub struct EndSignal {
    waiting: AtomicUsize,
    by_task: Mutex<HashMap<TaskId, (Arc<Notify>, usize)>>,
}

impl EndSignal {
    /// Registers a waiter. The caller does so *before* it reads the task, so that no end is missed in between.
    pub fn subscribe(self: &Arc<Self>, id: TaskId) -> EndWaiter {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut by_task = self.by_task.lock().unwrap_or_else(PoisonError::into_inner);
        let (notify, users) = by_task.entry(id).or_default();
        *users += 1;
        EndWaiter {
            notify: notify.clone(),
            signal: self.clone(),
            id,
        }
    }

    /// Wakes the waiters of a task that has ended. Costs one atomic load if there are no waiters.
    pub fn ended(&self, id: &TaskId) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let by_task = self.by_task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((notify, _)) = by_task.get(id) {
            notify.notify_waiters();
            notify.notify_one();
        }
    }
}

/// Waits for the end of one task. Deregistered when dropped.
#[derive(Debug)]
pub struct EndWaiter {
    signal: Arc<EndSignal>,
    notify: Arc<Notify>,
    id: TaskId,
}

impl EndWaiter {
    /// Waits for a signal. The caller then reads the task again. Cancel safe.
    pub async fn signalled(&self) {
        self.notify.notified().await;
    }
}

impl Drop for EndWaiter {
    fn drop(&mut self) {
        let mut by_task = self
            .signal
            .by_task
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, users)) = by_task.get_mut(&self.id) {
            *users -= 1;
            if *users == 0 {
                by_task.remove(&self.id);
            }
        }
        self.signal.waiting.fetch_sub(1, Ordering::AcqRel);
        // This waiter may have received a signal without using it, so it passes one on.
        self.notify.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_earlier_task_wakes_the_consumer_and_a_later_one_does_not() {
        let signal = DueSignal::default();
        let at = Timestamp::clamped;
        signal.announce(at(5_000));
        assert_eq!(signal.take(), Some(at(5_000)));
        signal.announce(at(900));
        signal.due_before(at(1_000)).await;
        assert_eq!(signal.take(), Some(at(900)));
        assert_eq!(signal.take(), None);
    }

    #[tokio::test]
    async fn an_end_between_subscribing_and_waiting_is_not_missed() {
        let signal = Arc::new(EndSignal::default());
        let id = TaskId::from_bytes([7; 16]);
        let waiter = signal.subscribe(id);
        signal.ended(&id);
        waiter.signalled().await;
        drop(waiter);
        assert!(signal.by_task.lock().unwrap().is_empty());
    }
}
