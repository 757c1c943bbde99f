//! Pauses polling while the host is short of what a run needs: descriptors, processes, memory or disk.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dueline_domain::Jitter;
use dueline_runtime::LogLimit;
use tokio::time::Instant;

/// Pause after the first fault; doubled with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Faults of the host, since the last run that the host could carry out.
#[derive(Default)]
pub(crate) struct HostPause {
    /// Whether there was a fault, so that a run of a healthy host takes no lock.
    is_faulty: AtomicBool,
    state: Mutex<HostPauseState>,
    log: LogLimit,
}

#[derive(Default)]
struct HostPauseState {
    faults: u32,
    until: Option<Instant>,
    error: String,
}

impl HostPause {
    /// A run failed for lack of something. Several runs that fail during one pause count once.
    pub(crate) fn fault(&self, error: &str, jitter: Jitter) {
        let now = Instant::now();
        let mut state = self.state();
        if state.until.is_some_and(|until| now < until) {
            return;
        }
        let pause = PAUSE_MIN.saturating_mul(1 << state.faults.min(10));
        let pause = pause.min(PAUSE_MAX).mul_f64(0.5 + jitter.get() / 2.0);
        state.faults += 1;
        state.until = Some(now + pause);
        error.clone_into(&mut state.error);
        self.is_faulty.store(true, Ordering::Relaxed);
        // Some runs may fit while others do not, so this would be logged twice a second.
        if let Some(left_out) = self.log.admit() {
            tracing::warn!(
                error,
                ?pause,
                left_out,
                reason = "host_fault",
                "this host cannot run tasks now; they are abandoned without using a try, and polling pauses",
            );
        }
    }

    /// A run was carried out.
    pub(crate) fn recovered(&self) {
        if self.is_faulty.load(Ordering::Relaxed) {
            self.is_faulty.store(false, Ordering::Relaxed);
            *self.state() = HostPauseState::default();
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_faulty.load(Ordering::Relaxed)
            && (self.state().until).is_some_and(|until| Instant::now() < until)
    }

    /// Waits until no pause is left. Cancel safe.
    pub(crate) async fn over(&self) {
        loop {
            let until = self.state().until;
            match until.filter(|until| Instant::now() < *until) {
                Some(until) => tokio::time::sleep_until(until).await,
                None => return,
            }
        }
    }

    /// The error of the latest fault, until a run was carried out.
    pub(crate) fn error(&self) -> Option<String> {
        let state = self.state();
        (state.faults > 0).then(|| state.error.clone())
    }

    fn state(&self) -> MutexGuard<'_, HostPauseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
