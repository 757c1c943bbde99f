//! The search for firings against a scan of every minute of a year and a half.
//!
//! The scan shares nothing with the search: it converts each minute to local time, compares the fields of that time
//! with those of the rule (`fields.rs`), and sees gaps and overlaps as local minutes that are left out or come again.

mod fields;
mod scan;

use std::sync::LazyLock;

use dueline_domain::{RuleSpec, Timestamp};
use dueline_schedule::Rule;
use proptest::{prelude::*, sample::Index};

use crate::{
    fields::{CronFields, cron_fields},
    scan::{Scan, ZoneMinutes},
};

const ZONES: [&str; 7] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kolkata",
    // Its clocks change at midnight.
    "Africa/Cairo",
    // Local time goes back over midnight.
    "Atlantic/Azores",
];

static MINUTES: LazyLock<Vec<ZoneMinutes>> =
    LazyLock::new(|| ZONES.iter().map(|zone| ZoneMinutes::of(zone)).collect());

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn g_05_the_search_finds_what_a_scan_of_every_minute_finds(
        cron in cron_fields(),
        zone in 0..ZONES.len(),
        starts in proptest::collection::vec(any::<Index>(), 4),
    ) {
        check(&cron, &MINUTES[zone], &starts)?;
    }
}

fn check(cron: &CronFields, zone: &ZoneMinutes, starts: &[Index]) -> Result<(), TestCaseError> {
    let spec = RuleSpec {
        timing: cron.text(),
        zone: Some(zone.name.to_owned()),
        ..RuleSpec::default()
    };
    let scan = Scan::of(cron, zone);
    let rule = match Rule::parse(&spec) {
        Ok(rule) => rule,
        Err(error) => {
            // Only a day that no year has is refused.
            prop_assert_eq!(error.reason().name(), "never_fires", "{}", spec.timing);
            prop_assert!(scan.is_empty(), "{}", spec.timing);
            return Ok(());
        }
    };
    let (first, end) = zone.range();
    let at = |second: i64| Timestamp::clamped(second * 1_000);
    let seconds = |times: Vec<Timestamp>| -> Vec<i64> {
        times
            .into_iter()
            .map(|time| time.millis() / 1_000)
            .collect()
    };
    prop_assert_eq!(
        rule.count(at(first), at(end)),
        scan.count(first, end),
        "{}",
        &spec.timing
    );
    // From random points, and around each change of the clock.
    let random = starts
        .iter()
        .map(|start| first + start.index(500 * 86_400) as i64);
    let around = zone.changes.iter().map(|change| change - 86_400);
    for from in random.chain(around).chain([first]) {
        let to = (from + 3 * 86_400).min(end);
        let found = seconds(rule.between(at(from), at(to), 100).times);
        prop_assert_eq!(
            &found,
            &scan.first(from, to, 100),
            "{} from {}",
            &spec.timing,
            from
        );
        let count = scan.count(from, to);
        prop_assert_eq!(
            rule.count(at(from), at(to)),
            count,
            "{} from {}",
            &spec.timing,
            from
        );
        let next = rule.next_after(at(from)).map(|time| time.millis() / 1_000);
        let expected = scan.first(from + 1, end, 1).first().copied();
        prop_assert_eq!(
            next.filter(|next| *next < end),
            expected,
            "{} after {}",
            &spec.timing,
            from
        );
        // From the end of the range the firings are the same.
        let n = count.min(100);
        let last = rule
            .from_last(n, at(from), at(to))
            .map(|time| time.millis() / 1_000);
        let expected = scan.last(from, to, n);
        prop_assert_eq!(last, expected, "{} before {}", &spec.timing, to);
    }
    Ok(())
}

/// Rules for which the cases above would need luck: the changes of the clock are at these times.
#[test]
fn g_05_rules_at_the_changes_of_the_clock_match_the_scan() {
    use crate::fields::{Day, Item, Weekday};
    let every = || vec![Item::Every];
    let value = |value| vec![Item::Value(value)];
    for (second, minute, hour) in [
        (value(0), value(30), value(2)),
        (value(0), value(30), vec![Item::Value(1), Item::Value(2)]),
        (value(59), vec![Item::Range(0, 59)], vec![Item::Range(0, 3)]),
        (value(0), vec![Item::Step(20)], vec![Item::Range(0, 3)]),
        (value(0), value(0), every()),
        (vec![Item::Step(30)], value(0), value(0)),
        (vec![Item::Value(0), Item::Value(30)], value(0), value(0)),
        (value(0), value(59), value(23)),
        (value(0), value(30), vec![Item::Step(1)]),
    ] {
        let cron = CronFields {
            second: Some(second),
            minute,
            hour,
            month: every(),
            day: Day::Every,
            weekday: Weekday::Every,
            needs_both: false,
        };
        for zone in MINUTES.iter() {
            check(&cron, zone, &[]).unwrap();
        }
    }
}
