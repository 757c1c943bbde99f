//! When to look next.

use std::time::Duration;

use dueline_domain::Timestamp;
use dueline_ports::Clock;
use dueline_runtime::DueSignal;
use tokio::time::{Instant, sleep_until};

/// Longest sleep planned by the wall clock in one go.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// A moment by the wall clock, but not before one by the timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Timestamp,
    pub(crate) no_sooner: Instant,
}

impl Moment {
    fn has_come(&self, now: Instant, wall: Timestamp) -> bool {
        wall >= self.at && now >= self.no_sooner
    }

    fn sleep_until(&self, now: Instant, wall: Timestamp) -> Instant {
        (now + self.at.since(wall).min(SLEEP_MAX)).max(self.no_sooner)
    }
}

/// A plan for the next look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// When the store knows of something due.
    pub(crate) known: Moment,
    /// When something that is announced meanwhile is due.
    pub(crate) announced: Moment,
    /// At the latest, whatever happens to the wall clock.
    pub(crate) latest: Instant,
}

impl Plan {
    /// At once.
    pub(crate) fn now(at: Timestamp) -> Self {
        let no_sooner = Instant::now();
        let moment = Moment { at, no_sooner };
        Self {
            known: moment,
            announced: moment,
            latest: no_sooner,
        }
    }

    /// Moves the latest moment forward.
    pub(crate) fn no_later(self, than: Option<Instant>) -> Self {
        let latest = than.map_or(self.latest, |than| than.min(self.latest));
        Self { latest, ..self }
    }

    /// Waits until the time of the plan has come, or of something sooner that is announced meanwhile. Cancel safe,
    /// apart from what was announced: whoever drops this must look at the store before it waits again.
    pub(crate) async fn wait(mut self, clock: &dyn Clock, due: &DueSignal) {
        loop {
            let (now, wall) = (Instant::now(), clock.now());
            let has_come = |moment: &Moment| moment.has_come(now, wall);
            if now >= self.latest || has_come(&self.known) || has_come(&self.announced) {
                // Somebody else may need this thread between two looks.
                return tokio::task::yield_now().await;
            }
            // Times are whole milliseconds and so are timers: this wakes within a millisecond or two, never early.
            let known = self.known.sleep_until(now, wall);
            let announced = self.announced.sleep_until(now, wall);
            let planned_at = self.known.at.min(self.announced.at);
            tokio::select! {
                biased;
                () = sleep_until(known.min(announced).min(self.latest)) => {}
                () = due.sooner_than(planned_at) => {
                    self.announced.at = due.take().unwrap_or(planned_at).min(self.announced.at);
                }
            }
        }
    }
}
