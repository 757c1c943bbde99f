//! Points in time as whole milliseconds since the Unix epoch.

use std::{fmt, time::Duration};

/// A point in time: milliseconds since 1970-01-01T00:00:00Z, never negative, never past the year 9999.
///
/// Arithmetic saturates at both ends, so a huge delay gives [`Timestamp::MAX`] instead of a time in the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A number of milliseconds that is not a [`Timestamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time {0} ms is outside the years 1970 to 9999")]
pub struct TimestampError(pub i64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);
    /// The last millisecond of the year 9999, the last one that RFC 3339 can express.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// Accepts milliseconds since the Unix epoch within the years 1970 to 9999.
    pub const fn from_millis(millis: i64) -> Result<Self, TimestampError> {
        if millis < 0 || millis > Self::MAX.0 {
            return Err(TimestampError(millis));
        }
        Ok(Self(millis))
    }

    /// As [`Timestamp::from_millis`], clamped into the range.
    pub fn clamped(millis: i64) -> Self {
        Self(millis.clamp(0, Self::MAX.0))
    }

    /// Milliseconds since the Unix epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The time `delay` after this one, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        let millis = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        Self::clamped(self.0.saturating_add(millis))
    }

    /// The time `span` before this one, at least [`Timestamp::EPOCH`].
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self::clamped(self.0.saturating_sub(millis))
    }

    /// The duration from `earlier` to this time; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Timestamp::EPOCH.after(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.before(Duration::MAX), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
    }

    #[test]
    fn year_ten_thousand_and_years_before_1970_are_refused() {
        assert!(Timestamp::from_millis(Timestamp::MAX.0 + 1).is_err());
        assert!(Timestamp::from_millis(-1).is_err());
    }
}
