//! Intervals: every so many seconds of elapsed time.

use crate::error::{RuleError, RuleFault, RuleField};

/// A firing at `anchor + n × every` for each whole number n.
///
/// The times follow from the anchor alone, never from a previous firing, so an interval does not drift.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    every_ms: i64,
    anchor_ms: i64,
}

impl Interval {
    /// The longest interval: 366 days.
    const SECONDS_MAX: u64 = 366 * 86_400;

    /// Parses a duration of whole seconds such as `90s`, `15m`, `1h30m` or `2d`, of at least one second.
    pub(crate) fn parse(text: &str, anchor_ms: i64) -> Result<Self, RuleError> {
        let error = |reason, message| Err(RuleError::new(RuleField::Timing, reason, message));
        let Some(seconds) = seconds(text) else {
            let message = format!("'{text}' is not an interval; write it as 90s, 15m, 1h30m or 2d");
            return error(RuleFault::InvalidSyntax, message);
        };
        if !(1..=Self::SECONDS_MAX).contains(&seconds) {
            let message = "an interval has at least one second and at most 366 days".to_owned();
            return error(RuleFault::OutOfRange, message);
        }
        Ok(Self {
            every_ms: seconds.cast_signed() * 1_000,
            anchor_ms,
        })
    }

    /// The first firing at or after `from_ms` and before `until_ms`.
    pub(crate) fn next(&self, from_ms: i64, until_ms: i64) -> Option<i64> {
        let phase = (from_ms - self.anchor_ms).rem_euclid(self.every_ms);
        let next = match phase {
            0 => from_ms,
            _ => from_ms.checked_add(self.every_ms - phase)?,
        };
        (next < until_ms).then_some(next)
    }

    /// The number of firings at or after `from_ms` and before `until_ms`.
    pub(crate) fn count(&self, from_ms: i64, until_ms: i64) -> u64 {
        let Some(first) = self.next(from_ms, until_ms) else {
            return 0;
        };
        let steps = (until_ms - 1 - first) / self.every_ms;
        u64::try_from(steps).unwrap_or(0) + 1
    }
}

/// The seconds of a text such as `1h30m`: numbers with the units d, h, m and s, each unit at most once, from large to
/// small. `None` when the text is something else or the sum is too large.
fn seconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum = 0_u64;
    for (unit, unit_seconds) in [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)] {
        if let Some((number, after)) = rest.split_once(unit)
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            let number = number.parse::<u64>().ok()?;
            sum = sum.checked_add(number.checked_mul(unit_seconds)?)?;
            rest = after;
        }
    }
    (rest.is_empty() && !text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_05_intervals_are_whole_seconds_between_a_second_and_a_year() {
        for (text, expected) in [
            ("1s", Some(1)),
            ("90s", Some(90)),
            ("15m", Some(900)),
            ("1h30m", Some(5_400)),
            ("2d1h1m1s", Some(176_461)),
            ("366d", Some(366 * 86_400)),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
            assert!(Interval::parse(text, 0).is_ok(), "{text}");
        }
        for (text, reason) in [
            ("", RuleFault::InvalidSyntax),
            ("90", RuleFault::InvalidSyntax),
            ("s", RuleFault::InvalidSyntax),
            ("-5s", RuleFault::InvalidSyntax),
            ("1.5h", RuleFault::InvalidSyntax),
            ("5s1m", RuleFault::InvalidSyntax),
            ("1m1m", RuleFault::InvalidSyntax),
            ("99999999999999999999d", RuleFault::InvalidSyntax),
            ("0s", RuleFault::OutOfRange),
            ("367d", RuleFault::OutOfRange),
            ("366d1s", RuleFault::OutOfRange),
        ] {
            let error = Interval::parse(text, 0).unwrap_err();
            assert_eq!(
                (error.field(), error.reason()),
                (RuleField::Timing, reason),
                "{text}"
            );
        }
    }

    #[test]
    fn g_05_an_interval_keeps_its_phase_before_and_after_its_anchor() {
        let interval = Interval::parse("10s", 3_000).unwrap();
        assert_eq!(interval.next(0, 100_000), Some(3_000));
        assert_eq!(interval.next(3_000, 100_000), Some(3_000));
        assert_eq!(interval.next(3_001, 100_000), Some(13_000));
        assert_eq!(interval.next(3_001, 13_000), None);
        let late = Interval::parse("10s", 1_000_003_000).unwrap();
        assert_eq!(late.next(0, 100_000), Some(3_000));
        assert_eq!(late.count(0, 103_000), 10);
        assert_eq!(late.count(0, 103_001), 11);
        assert_eq!(late.count(4_000, 13_000), 0);
    }
}
