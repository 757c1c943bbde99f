//! Measures the difference between another machine's clock and this one's.

use std::time::UNIX_EPOCH;

use dueline_domain::Timestamp;

/// A reading of another machine's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The service or server whose clock was read.
    pub source: String,
    /// How far that clock is ahead of this machine's clock; negative if it is behind.
    pub ahead_ms: i64,
    /// The error bound of the difference, in either direction.
    pub uncertain_ms: i64,
}

impl ClockReading {
    /// Reads the clock from the `Date` header of a response; `requested_at` and `responded_at` are the times of request
    /// and response by this machine's clock. `None` if the header is not a date.
    pub fn from_date(
        source: impl Into<String>,
        date: &str,
        requested_at: Timestamp,
        responded_at: Timestamp,
    ) -> Option<Self> {
        let date = httpdate::parse_http_date(date).ok()?;
        let date_ms = date.duration_since(UNIX_EPOCH).ok()?.as_millis();
        let took_ms = (responded_at.millis() - requested_at.millis()).max(0);
        let (source, middle_ms) = (source.into(), responded_at.millis() - took_ms / 2);
        // The header is truncated to whole seconds, which is half a second too early on average.
        let ahead_ms = i64::try_from(date_ms).ok()? + 500 - middle_ms;
        Some(Self {
            source,
            ahead_ms,
            uncertain_ms: 500 + took_ms / 2,
        })
    }

    /// The least difference that is certain.
    pub fn at_least_ms(&self) -> i64 {
        (self.ahead_ms.abs() - self.uncertain_ms).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Fri, 20 Nov 2026 09:30:00 GMT";
    const DATE_MS: i64 = 1_795_167_000_000;

    fn reading(requested_at: i64, responded_at: i64) -> ClockReading {
        let at = |ms| Timestamp::clamped(DATE_MS + ms);
        ClockReading::from_date("it", DATE, at(requested_at), at(responded_at)).expect("a date")
    }

    #[test]
    fn g_18_equal_clocks_show_no_difference_at_any_fraction_of_a_second() {
        for millis in [0, 250, 500, 750, 999] {
            assert_eq!(reading(millis, millis).at_least_ms(), 0, "{millis}");
        }
        assert_eq!(reading(-3_000, 4_000).at_least_ms(), 0, "a slow response");
    }

    #[test]
    fn g_18_a_wrong_clock_shows_its_least_difference() {
        let behind = reading(3_600_000, 3_600_200);
        assert_eq!(behind.ahead_ms, -3_599_600);
        assert_eq!(behind.at_least_ms(), 3_599_000);
        let ahead = reading(-5_000, -5_000);
        assert_eq!(ahead.ahead_ms, 5_500);
        assert_eq!(ahead.at_least_ms(), 5_000);
    }

    #[test]
    fn a_header_that_is_not_a_date_gives_no_reading() {
        let now = Timestamp::clamped(DATE_MS);
        assert_eq!(ClockReading::from_date("it", "yesterday", now, now), None);
    }
}
