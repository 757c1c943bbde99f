//! Every zone of the database, with all changes of its clock since 1970.

use dueline_domain::{RuleSpec, Timestamp};
use dueline_schedule::Rule;
use jiff::tz::TimeZoneDatabase;

#[test]
fn g_05_a_fixed_daily_rule_fires_once_a_day_in_every_zone() {
    let (from, to) = (
        Timestamp::clamped(86_400_000),
        // 2040-01-01.
        Timestamp::clamped(2_208_988_800_000),
    );
    let days = (to.millis() - from.millis()) / 86_400_000;
    let database = TimeZoneDatabase::bundled();
    let mut zones = 0;
    for name in database.available() {
        for timing in ["15 2 * * *", "59 59 23 * * *"] {
            let rule = Rule::parse(&RuleSpec {
                timing: timing.to_owned(),
                zone: Some(name.to_string()),
                ..RuleSpec::default()
            });
            // The database has a name for the zone that is not known.
            let Ok(rule) = rule else {
                assert_eq!(name.as_str(), "Etc/Unknown");
                continue;
            };
            zones += 1;
            let count = i64::try_from(rule.count(from, to)).unwrap();
            // A zone that moved across the date line has a day more or less, and the first and last day may be in part.
            assert!(
                (days - 2..=days + 2).contains(&count),
                "{name} {timing}: {count} of {days}"
            );
            // Around each change, the firings one by one are as many as are counted.
            let zone = database.get(name.as_str()).unwrap();
            for change in zone.following(jiff::Timestamp::UNIX_EPOCH) {
                let at = |days: i64| {
                    Timestamp::clamped(change.timestamp().as_millisecond() + days * 86_400_000)
                };
                if at(0) >= to {
                    break;
                }
                let times = rule.between(at(-2), at(2), usize::MAX).times;
                let count = rule.count(at(-2), at(2));
                assert_eq!(times.len() as u64, count, "{name} {timing} {change:?}");
                assert!(times.is_sorted_by(|a, b| a < b));
            }
        }
    }
    assert!(zones > 2 * 400, "{zones}");
}
