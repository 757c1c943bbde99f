//! Parses and formats times and durations.

use std::time::Duration;

use dueline_api::v1::Time;
use dueline_domain::{Policy, Timestamp};

/// A duration such as `10s`, `1m 30s`, `250ms`, `1.5h`, or a plain number of seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let quoted = text.escape_debug();
    let invalid = || format!("'{quoted}' is not a duration; write it as 10s, 1m30s, 250ms or 0.5");
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit_seconds = match unit.trim() {
        "" | "s" | "sec" => Some(1.0),
        "ms" => Some(0.001),
        "m" | "min" => Some(60.0),
        "h" => Some(3_600.0),
        "d" => Some(86_400.0),
        _ => None,
    };
    let duration = match (unit_seconds, number.parse::<f64>()) {
        (Some(unit), Ok(number)) => {
            Duration::try_from_secs_f64(number * unit).map_err(|_| invalid())?
        }
        _ => humantime::parse_duration(trimmed).map_err(|_| invalid())?,
    };
    if duration > Policy::TIMEOUT_MAX * 100 {
        return Err(format!("'{quoted}' is longer than a hundred years"));
    }
    Ok(duration)
}

/// As [`parse_duration`], for a timeout, which must not be zero.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be more than zero".into()),
        duration => Ok(duration),
    }
}

/// A point in time in RFC 3339.
pub(crate) fn parse_time(text: &str) -> Result<Time, String> {
    Time::parse(text)
}

/// Whole milliseconds of a duration.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A point in time relative to `now`: `in 5 s`, `3 min ago`. From 30 days on it is the date.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    const FAR_MS: u64 = 30 * 86_400_000;
    let away_ms = at.millis().abs_diff(now.millis());
    if away_ms < 1_000 {
        return "now".into();
    }
    if away_ms >= FAR_MS {
        return Time::from(at).to_string().chars().take(10).collect();
    }
    let away = span(Duration::from_millis(away_ms));
    if at > now {
        format!("in {away}")
    } else {
        format!("{away} ago")
    }
}

/// A duration in its largest fitting unit, rounded: `250 ms`, `5 s`, `3 min`, `2 h`, `4 d`.
pub(crate) fn span(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1_000 {
        return format!("{millis} ms");
    }
    let rounded = |unit_ms: u128| (millis + unit_ms / 2) / unit_ms;
    match rounded(1_000) {
        seconds @ 0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", rounded(60_000)),
        7_200..172_800 => format!("{} h", rounded(3_600_000)),
        _ => format!("{} d", rounded(86_400_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_in_all_their_notations() {
        for (text, expected_ms) in [
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("1h 30m", 5_400_000),
            ("250ms", 250),
            ("0.1", 100),
            ("0.5s", 500),
            ("1.5h", 5_400_000),
            ("30", 30_000),
            ("2d", 172_800_000),
            ("0", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(expected_ms)),
                "{text}"
            );
        }
        for bad in [
            "",
            "soon",
            "-1",
            "-5s",
            "1.2.3",
            "10 parsecs",
            "99999999999999999999d",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_are_formatted_relative_to_now() {
        let now = Timestamp::clamped(1_700_000_000_000);
        let at = |offset_ms: i64| relative(Timestamp::clamped(now.millis() + offset_ms), now);
        assert_eq!(at(0), "now");
        assert_eq!(at(-999), "now");
        assert_eq!(at(5_000), "in 5 s");
        assert_eq!(at(-200_000), "3 min ago");
        assert_eq!(at(7_199_900), "in 2 h");
        assert_eq!(at(-3 * 3_600_000), "3 h ago");
        assert_eq!(at(3 * 86_400_000), "in 3 d");
        assert_eq!(at(-40 * 86_400_000), "2023-10-05");
    }
}
