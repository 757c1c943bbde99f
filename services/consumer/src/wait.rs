//! Schedules the next scan.

use std::time::Duration;

use dueline_domain::Timestamp;
use dueline_ports::Clock;
use dueline_runtime::DueSignal;
use tokio::time::{Instant, sleep_until};

/// Longest single sleep planned by the wall clock.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// A time by the wall clock, but not before an instant by the timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeTime {
    pub(crate) at: Timestamp,
    pub(crate) not_before: Instant,
}

impl WakeTime {
    fn has_passed(&self, now: Instant, wall: Timestamp) -> bool {
        wall >= self.at && now >= self.not_before
    }

    fn sleep_until(&self, now: Instant, wall: Timestamp) -> Instant {
        (now + self.at.since(wall).min(SLEEP_MAX)).max(self.not_before)
    }
}

/// The schedule of the next scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanSchedule {
    /// The next trigger time that the store has returned.
    pub(crate) stored: WakeTime,
    /// The earliest trigger time that was announced since the scan.
    pub(crate) announced: WakeTime,
    /// The latest instant of the next scan, however the wall clock jumps.
    pub(crate) latest: Instant,
}

impl ScanSchedule {
    /// A schedule for an immediate scan.
    pub(crate) fn immediately(at: Timestamp) -> Self {
        let not_before = Instant::now();
        let wake_time = WakeTime { at, not_before };
        Self {
            stored: wake_time,
            announced: wake_time,
            latest: not_before,
        }
    }

    /// Limits the latest instant to `limit`.
    pub(crate) fn no_later_than(self, limit: Option<Instant>) -> Self {
        let latest = limit.map_or(self.latest, |limit| limit.min(self.latest));
        Self { latest, ..self }
    }

    /// Waits until a scheduled time has passed, or an earlier one that is announced meanwhile. Cancel safe, except that
    /// an announcement is lost: after dropping this future, the store must be scanned before waiting again.
    pub(crate) async fn wait(mut self, clock: &dyn Clock, due: &DueSignal) {
        loop {
            let (now, wall) = (Instant::now(), clock.now());
            let has_passed = |wake_time: &WakeTime| wake_time.has_passed(now, wall);
            if now >= self.latest || has_passed(&self.stored) || has_passed(&self.announced) {
                // Yields so that other tasks of this thread can run between two scans.
                return tokio::task::yield_now().await;
            }
            // Both wall-clock times and timers have millisecond resolution: this wakes within 2 ms, and never early.
            let stored = self.stored.sleep_until(now, wall);
            let announced = self.announced.sleep_until(now, wall);
            let planned_at = self.stored.at.min(self.announced.at);
            tokio::select! {
                biased;
                () = sleep_until(stored.min(announced).min(self.latest)) => {}
                () = due.due_before(planned_at) => {
                    self.announced.at = due.take().unwrap_or(planned_at).min(self.announced.at);
                }
            }
        }
    }
}
