//! How late tasks were handed on, as whoever reads a metric every some seconds needs it: the worst of lately.

use std::time::Duration;

use tokio::time::Instant;

/// The worst is told for this long at least, and for twice as long at most.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// The worst of this stretch of time and of the one before.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    now: Duration,
    before: Duration,
    since: Option<Instant>,
}

impl Lateness {
    /// Takes note of a look; answers the worst of lately.
    pub(crate) fn note(&mut self, late: Duration, at: Instant) -> Duration {
        let since = *self.since.get_or_insert(at);
        if at.saturating_duration_since(since) >= KEPT_FOR {
            self.before = std::mem::take(&mut self.now);
            self.since = Some(at);
        }
        self.now = self.now.max(late);
        self.now.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_worst_is_told_for_half_a_minute_and_then_forgotten() {
        let (mut lateness, start) = (Lateness::default(), Instant::now());
        let mut note = |late_s, at_s| {
            let late = Duration::from_secs(late_s);
            lateness
                .note(late, start + Duration::from_secs(at_s))
                .as_secs()
        };
        assert_eq!(note(10, 0), 10);
        assert_eq!(note(9, 29), 10);
        // A new stretch: what was 9 s late a second ago is not forgotten with the rest.
        assert_eq!(note(0, 30), 10);
        assert_eq!(note(8, 59), 10);
        assert_eq!(note(0, 60), 8);
        assert_eq!(note(0, 90), 0);
    }
}
