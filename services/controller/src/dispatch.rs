//! New tasks that go straight to a worker that waits.
//!
//! Without this a task is stored, its message is buffered, and a claim is a second write. A worker that waits with an
//! empty buffer can be set aside before the task is stored, so that storing and claiming are one write.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dueline_api::{Assignment, Dispatch, NextWork, Reservation};
use dueline_domain::{JobName, Weight, WorkerId};
use tokio::sync::oneshot;

use crate::{Controller, hand_out::Handed};

/// What a worker that was set aside waits for; it ends without an answer when the reservation is dropped.
type Offer = oneshot::Receiver<Handed>;

/// Workers whose question waits, the longest first.
#[derive(Default)]
pub(crate) struct Waiting {
    waiters: Mutex<VecDeque<Waiter>>,
    numbers: AtomicU64,
}

struct Waiter {
    number: u64,
    worker: WorkerId,
    jobs: Vec<JobName>,
    handlers: Vec<Arc<str>>,
    weight_max: u32,
    offer: oneshot::Sender<Offer>,
}

/// A question that waits; ends when dropped.
pub(crate) struct Place<'a> {
    waiting: &'a Waiting,
    number: u64,
    /// Ready when the worker was set aside.
    pub(crate) offered: oneshot::Receiver<Offer>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiter>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The question of `ask` waits from now on.
    pub(crate) fn wait(&self, ask: &NextWork) -> Place<'_> {
        let (offer, offered) = oneshot::channel();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.lock().push_back(Waiter {
            number,
            worker: ask.worker.clone(),
            jobs: ask.jobs.clone(),
            handlers: ask.handlers.clone(),
            weight_max: ask.weight_max.min(ask.task_weight_max),
            offer,
        });
        Place {
            waiting: self,
            number,
            offered,
        }
    }

    /// Takes out the worker that has waited longest and can run the task.
    fn take(&self, job: &JobName, handler: &Arc<str>, weight: u32) -> Option<Waiter> {
        let mut waiters = self.lock();
        let at = waiters.iter().position(|waiter| {
            weight <= waiter.weight_max
                && (waiter.jobs.contains(job) || waiter.handlers.contains(handler))
        })?;
        waiters.remove(at)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiters = self.waiting.lock();
        if let Some(at) = waiters
            .iter()
            .position(|waiter| waiter.number == self.number)
        {
            waiters.remove(at);
        }
    }
}

struct Reserved {
    worker: WorkerId,
    controller: Arc<Controller>,
    hand: oneshot::Sender<Handed>,
}

impl Reservation for Reserved {
    fn worker(&self) -> &WorkerId {
        &self.worker
    }

    fn deliver(self: Box<Self>, assignment: Assignment) {
        let handed = Handed::new(
            vec![assignment],
            &self.controller.deps,
            &self.controller.hand_outs,
        );
        // A worker that is gone leaves the task here, where dropping it gives it back.
        drop(self.hand.send(handed));
    }
}

impl Dispatch for Controller {
    fn reserve(self: Arc<Self>, job: &JobName, weight: Weight) -> Option<Box<dyn Reservation>> {
        if self.stopped.is_cancelled() {
            return None;
        }
        let handler = self.buffer().handler_if_empty(job)?;
        loop {
            let waiter = self.waiting.take(job, &handler, u32::from(weight.get()))?;
            let (hand, offer) = oneshot::channel();
            // A question that was answered in this very moment waits no more; the next one may.
            if waiter.offer.send(offer).is_ok() {
                return Some(Box::new(Reserved {
                    worker: waiter.worker,
                    controller: self.clone(),
                    hand,
                }));
            }
        }
    }
}
