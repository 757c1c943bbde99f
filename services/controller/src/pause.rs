//! Pauses receiving and dispatching while this controller cannot claim tasks.
//!
//! Without a pause, a controller that cannot reach the status controller would receive the same messages again and
//! again, and controllers that can reach it would hardly get them. Where the store only throttles the claims of one
//! job, because of the load on its partition, only that job pauses.

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

/// Length of the first pause.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Length of the longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The pauses of one controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimPauses {
    /// The pause of all jobs.
    pub(crate) all: Arc<ClaimPause>,
    by_job: Arc<Mutex<BTreeMap<JobName, Arc<ClaimPause>>>>,
}

impl ClaimPauses {
    fn by_job(&self) -> MutexGuard<'_, BTreeMap<JobName, Arc<ClaimPause>>> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pause of one job.
    pub(crate) fn of(&self, job: &JobName) -> Arc<ClaimPause> {
        let mut by_job = self.by_job();
        if let Some(pause) = by_job.get(job) {
            return pause.clone();
        }
        let pause = Arc::<ClaimPause>::default();
        by_job.insert(job.clone(), pause.clone());
        pause
    }

    /// Removes the pause of a job that is no longer served.
    pub(crate) fn remove(&self, job: &JobName) {
        self.by_job().remove(job);
    }
}

/// A pause that doubles with each failure and is reset by a success.
#[derive(Debug)]
pub(crate) struct ClaimPause {
    state: Mutex<PauseState>,
    /// A `Notify`, because it wakes waiters in order. A channel that wakes them at random would make simulation runs
    /// unrepeatable.
    begun: Notify,
}

#[derive(Clone, Copy, Debug)]
struct PauseState {
    ends_at: Instant,
    /// Length of the next pause.
    next: Duration,
}

impl Default for ClaimPause {
    fn default() -> Self {
        let (ends_at, next) = (Instant::now(), PAUSE_MIN);
        Self {
            state: Mutex::new(PauseState { ends_at, next }),
            begun: Notify::new(),
        }
    }
}

impl ClaimPause {
    fn state(&self) -> MutexGuard<'_, PauseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a pause after a claim call in which every claim failed with a retryable error.
    pub(crate) fn claims_failed(&self) {
        let mut state = self.state();
        let now = Instant::now();
        // A failure during a pause belongs to a call that was in flight when the pause began: it does not count again.
        if state.ends_at <= now {
            state.ends_at = now + state.next;
            state.next = (state.next * 2).min(PAUSE_MAX);
            self.begun.notify_waiters();
        }
    }

    /// Resets the length of the next pause after a claim call that was answered.
    pub(crate) fn claims_succeeded(&self) {
        self.state().next = PAUSE_MIN;
    }

    /// The end of the current pause, if any.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        let ends_at = self.state().ends_at;
        (ends_at > Instant::now()).then_some(ends_at)
    }

    /// Waits until a pause begins; ready at once during a pause. Cancel safe.
    pub(crate) async fn until_begun(&self) {
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
    pub(crate) async fn until_over(&self) {
        while let Some(ends_at) = self.ends_at() {
            sleep_until(ends_at).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest_and_are_reset_by_a_success() {
        let pause = ClaimPause::default();
        assert!(pause.ends_at().is_none());
        let mut lengths_ms = Vec::new();
        for round in 0..6 {
            let begun_at = Instant::now();
            pause.claims_failed();
            pause.claims_failed();
            pause.until_begun().await;
            pause.until_over().await;
            lengths_ms.push(begun_at.elapsed().as_millis());
            if round == 4 {
                pause.claims_succeeded();
            }
        }
        assert_eq!(lengths_ms, [500, 1_000, 2_000, 4_000, 5_000, 500]);
    }
}
