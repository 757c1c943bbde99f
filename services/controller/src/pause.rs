//! A pause of all hand-outs while no task can be claimed from here.
//!
//! Without it a controller that cannot reach the status controller would take the same messages again and again, and
//! other controllers, which may well reach it, would hardly see them. Where the store only refuses the claims of one
//! job, because that asks too much of its partition, only that job pauses.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_domain::JobName;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// First and longest pause.
const STEPS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The pauses of one controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses {
    /// Of all hand-outs.
    pub(crate) all: Arc<Pause>,
    by_job: Arc<Mutex<BTreeMap<JobName, Arc<Pause>>>>,
}

impl Pauses {
    fn by_job(&self) -> MutexGuard<'_, BTreeMap<JobName, Arc<Pause>>> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pause of one job.
    pub(crate) fn of(&self, job: &JobName) -> Arc<Pause> {
        let mut by_job = self.by_job();
        if let Some(pause) = by_job.get(job) {
            return pause.clone();
        }
        let pause = Arc::<Pause>::default();
        by_job.insert(job.clone(), pause.clone());
        pause
    }

    /// The job is not served any more.
    pub(crate) fn forget(&self, job: &JobName) {
        self.by_job().remove(job);
    }
}

/// When hand-outs may go on.
#[derive(Debug)]
pub(crate) struct Pause {
    state: Mutex<State>,
    /// Wakes in the order of waiting: a channel that wakes at random would make a seed of the simulation worthless.
    begun: Notify,
}

#[derive(Clone, Copy, Debug)]
struct State {
    ends_at: Instant,
    /// Length of the next pause.
    next: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        let (ends_at, next) = (Instant::now(), STEPS.0);
        Self {
            state: Mutex::new(State { ends_at, next }),
            begun: Notify::new(),
        }
    }
}

impl Pause {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call claimed nothing because nothing could be decided.
    pub(crate) fn failed(&self) {
        let mut state = self.state();
        let now = Instant::now();
        // Calls that were under way when the pause began say nothing new.
        if state.ends_at <= now {
            state.ends_at = now + state.next;
            state.next = (state.next * 2).min(STEPS.1);
            self.begun.notify_waiters();
        }
    }

    /// A call was decided.
    pub(crate) fn succeeded(&self) {
        self.state().next = STEPS.0;
    }

    /// The end of the pause, if there is one now.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        let ends_at = self.state().ends_at;
        (ends_at > Instant::now()).then_some(ends_at)
    }

    /// Waits for a pause; ready at once in the middle of one. Cancel safe.
    pub(crate) async fn begins(&self) {
        loop {
            let mut begun = pin!(self.begun.notified());
            begun.as_mut().enable();
            if self.ends_at().is_some() {
                return;
            }
            begun.await;
        }
    }

    /// Waits until there is no pause. Cancel safe.
    pub(crate) async fn is_over(&self) {
        while let Some(ends_at) = self.ends_at() {
            sleep_until(ends_at).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest_and_start_anew_after_a_success() {
        let pause = Pause::default();
        assert!(pause.ends_at().is_none());
        let mut lengths_ms = Vec::new();
        for round in 0..6 {
            let begun_at = Instant::now();
            pause.failed();
            pause.failed();
            pause.begins().await;
            pause.is_over().await;
            lengths_ms.push(begun_at.elapsed().as_millis());
            if round == 4 {
                pause.succeeded();
            }
        }
        assert_eq!(lengths_ms, [500, 1_000, 2_000, 4_000, 5_000, 500]);
    }
}
