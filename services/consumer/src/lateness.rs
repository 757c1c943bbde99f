//! The largest recent delay between trigger time and enqueue. A gauge that is read every few seconds would miss shorter
//! peaks.

use std::time::Duration;

use tokio::time::Instant;

/// The largest delay is reported for at least this long, and at most twice as long.
const WINDOW: Duration = Duration::from_secs(30);

/// The largest delays of the current and of the previous window.
#[derive(Debug, Default)]
pub(crate) struct RecentLateness {
    current: Duration,
    previous: Duration,
    window_start: Option<Instant>,
}

impl RecentLateness {
    /// Records the delay of a scan. Returns the largest recent delay.
    pub(crate) fn record(&mut self, late: Duration, at: Instant) -> Duration {
        let window_start = *self.window_start.get_or_insert(at);
        if at.saturating_duration_since(window_start) >= WINDOW {
            self.previous = std::mem::take(&mut self.current);
            self.window_start = Some(at);
        }
        self.current = self.current.max(late);
        self.current.max(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_largest_delay_is_reported_for_half_a_minute_and_then_dropped() {
        let (mut lateness, start) = (RecentLateness::default(), Instant::now());
        let mut record = |late_s, at_s| {
            let late = Duration::from_secs(late_s);
            lateness
                .record(late, start + Duration::from_secs(at_s))
                .as_secs()
        };
        assert_eq!(record(10, 0), 10);
        assert_eq!(record(9, 29), 10);
        // A new window starts, and the delay of 9 s a second ago is still reported.
        assert_eq!(record(0, 30), 10);
        assert_eq!(record(8, 59), 10);
        assert_eq!(record(0, 60), 8);
        assert_eq!(record(0, 90), 0);
    }
}
