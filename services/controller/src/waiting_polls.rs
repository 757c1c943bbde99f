//! The polls that wait for work: how many tasks they have room for, and whose workers can be reserved.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dueline_api::PollRequest;
use dueline_domain::{JobName, WorkerId};
use tokio::sync::oneshot;

use crate::dispatch::Dispatched;

/// Where a reserved worker receives its task. Closes without a value when the reservation is dropped.
pub(crate) type ReservedTask = oneshot::Receiver<Dispatched>;

/// The polls that wait, the longest wait first.
#[derive(Default)]
pub(crate) struct WaitingPolls {
    polls: Mutex<VecDeque<WaitingPoll>>,
    numbers: AtomicU64,
}

pub(crate) struct WaitingPoll {
    number: u64,
    pub(crate) worker: WorkerId,
    jobs: Vec<JobName>,
    handlers: Vec<Arc<str>>,
    tasks_max: usize,
    weight_max: u32,
    is_reservable: bool,
    pub(crate) reserve: oneshot::Sender<ReservedTask>,
}

impl WaitingPoll {
    fn matches(&self, job: &JobName, handler: &Arc<str>) -> bool {
        self.jobs.contains(job) || self.handlers.contains(handler)
    }
}

/// What the polls that wait for one job have room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolledRoom {
    pub(crate) tasks: usize,
    /// Weight of the heaviest task that one of the polls has room for.
    pub(crate) weight_max: u32,
}

/// Removes its poll from the waiting ones when dropped.
pub(crate) struct WaitingPollGuard<'a> {
    waiting: &'a WaitingPolls,
    number: u64,
    /// Ready when the worker is reserved.
    pub(crate) reserved: oneshot::Receiver<ReservedTask>,
}

impl WaitingPolls {
    fn lock(&self) -> MutexGuard<'_, VecDeque<WaitingPoll>> {
        self.polls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a poll. Its worker may be reserved from now on if it is reservable.
    pub(crate) fn add(&self, poll: &PollRequest, is_reservable: bool) -> WaitingPollGuard<'_> {
        let (reserve, reserved) = oneshot::channel();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.lock().push_back(WaitingPoll {
            number,
            worker: poll.worker.clone(),
            jobs: poll.jobs.clone(),
            handlers: poll.handlers.clone(),
            // A task weighs at least one.
            tasks_max: poll.tasks_max.min(poll.weight_max as usize),
            weight_max: poll.weight_max.min(poll.task_weight_max),
            is_reservable,
            reserve,
        });
        WaitingPollGuard {
            waiting: self,
            number,
            reserved,
        }
    }

    /// Removes the poll that has waited longest among those that can run the task.
    pub(crate) fn take(
        &self,
        job: &JobName,
        handler: &Arc<str>,
        weight: u32,
    ) -> Option<WaitingPoll> {
        let mut polls = self.lock();
        let at = polls.iter().position(|poll| {
            poll.is_reservable && weight <= poll.weight_max && poll.matches(job, handler)
        })?;
        polls.remove(at)
    }

    /// What the polls that wait for this job have room for.
    pub(crate) fn room(&self, job: &JobName, handler: &Arc<str>) -> PolledRoom {
        let polls = self.lock();
        let matching = polls.iter().filter(|poll| poll.matches(job, handler));
        matching.fold(PolledRoom::default(), |room, poll| PolledRoom {
            tasks: room.tasks.saturating_add(poll.tasks_max),
            weight_max: room.weight_max.max(poll.weight_max),
        })
    }
}

impl Drop for WaitingPollGuard<'_> {
    fn drop(&mut self) {
        let mut polls = self.waiting.lock();
        if let Some(at) = polls.iter().position(|poll| poll.number == self.number) {
            polls.remove(at);
        }
    }
}
