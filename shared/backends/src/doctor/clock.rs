//! How far another machine's clock is from this one's.

use std::time::UNIX_EPOCH;

use dueline_domain::Timestamp;

/// Another clock beside this machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Whose clock.
    pub of: String,
    /// By how much it is ahead of ours; negative when it is behind.
    pub ahead_ms: i64,
    /// By how much that may be wrong in either direction.
    pub uncertain_ms: i64,
}

impl ClockReading {
    /// From the `Date` header of an answer, and when it was asked for and came by our clock. `None` when it is no date.
    pub fn of(
        of: impl Into<String>,
        date: &str,
        asked: Timestamp,
        answered: Timestamp,
    ) -> Option<Self> {
        let date = httpdate::parse_http_date(date).ok()?;
        let date_ms = date.duration_since(UNIX_EPOCH).ok()?.as_millis();
        let took_ms = (answered.millis() - asked.millis()).max(0);
        let (of, middle_ms) = (of.into(), answered.millis() - took_ms / 2);
        // A date has whole seconds, the rest is cut off: on average it tells half a second too little.
        let ahead_ms = i64::try_from(date_ms).ok()? + 500 - middle_ms;
        Some(Self {
            of,
            ahead_ms,
            uncertain_ms: 500 + took_ms / 2,
        })
    }

    /// The difference that is certain.
    pub fn at_least_ms(&self) -> i64 {
        (self.ahead_ms.abs() - self.uncertain_ms).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Fri, 20 Nov 2026 09:30:00 GMT";
    const DATE_MS: i64 = 1_795_167_000_000;

    fn reading(asked: i64, answered: i64) -> ClockReading {
        let at = |ms| Timestamp::clamped(DATE_MS + ms);
        ClockReading::of("it", DATE, at(asked), at(answered)).expect("a date")
    }

    #[test]
    fn g_18_equal_clocks_show_no_difference_whatever_part_of_a_second_it_is() {
        for millis in [0, 250, 500, 750, 999] {
            assert_eq!(reading(millis, millis).at_least_ms(), 0, "{millis}");
        }
        assert_eq!(reading(-3_000, 4_000).at_least_ms(), 0, "a slow answer");
    }

    #[test]
    fn g_18_a_clock_that_is_off_shows_by_how_much_at_least() {
        let behind = reading(3_600_000, 3_600_200);
        assert_eq!(behind.ahead_ms, -3_599_600);
        assert_eq!(behind.at_least_ms(), 3_599_000);
        let ahead = reading(-5_000, -5_000);
        assert_eq!(ahead.ahead_ms, 5_500);
        assert_eq!(ahead.at_least_ms(), 5_000);
    }

    #[test]
    fn what_is_no_date_tells_nothing() {
        let now = Timestamp::clamped(DATE_MS);
        assert_eq!(ClockReading::of("it", "yesterday", now, now), None);
    }
}
