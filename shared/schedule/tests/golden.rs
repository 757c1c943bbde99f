//! Firings on the days on which clocks change, written by hand from the published changes of 2025. Past days are used
//! because no later law changes them.

use dueline_domain::{RuleSpec, Timestamp};
use dueline_schedule::Rule;

/// The change of a clock: the instant in UTC, and the local times of the second before and of that instant.
struct Change {
    zone: &'static str,
    at: &'static str,
    from: &'static str,
    to: &'static str,
}

const BERLIN_GAP: Change = Change {
    zone: "Europe/Berlin",
    at: "2025-03-30T01:00:00Z",
    from: "2025-03-30T01:59:59+01:00",
    to: "2025-03-30T03:00:00+02:00",
};
const BERLIN_OVERLAP: Change = Change {
    zone: "Europe/Berlin",
    at: "2025-10-26T01:00:00Z",
    from: "2025-10-26T02:59:59+02:00",
    to: "2025-10-26T02:00:00+01:00",
};
const NEW_YORK_GAP: Change = Change {
    zone: "America/New_York",
    at: "2025-03-09T07:00:00Z",
    from: "2025-03-09T01:59:59-05:00",
    to: "2025-03-09T03:00:00-04:00",
};
const NEW_YORK_OVERLAP: Change = Change {
    zone: "America/New_York",
    at: "2025-11-02T06:00:00Z",
    from: "2025-11-02T01:59:59-04:00",
    to: "2025-11-02T01:00:00-05:00",
};
const LORD_HOWE_GAP: Change = Change {
    zone: "Australia/Lord_Howe",
    at: "2025-10-04T15:30:00Z",
    from: "2025-10-05T01:59:59+10:30",
    to: "2025-10-05T02:30:00+11:00",
};
const LORD_HOWE_OVERLAP: Change = Change {
    zone: "Australia/Lord_Howe",
    at: "2025-04-05T15:00:00Z",
    from: "2025-04-06T01:59:59+11:00",
    to: "2025-04-06T01:30:00+10:30",
};
const CASABLANCA_GAP: Change = Change {
    zone: "Africa/Casablanca",
    at: "2025-04-06T02:00:00Z",
    from: "2025-04-06T01:59:59+00:00",
    to: "2025-04-06T03:00:00+01:00",
};
const CASABLANCA_OVERLAP: Change = Change {
    zone: "Africa/Casablanca",
    at: "2025-02-23T02:00:00Z",
    from: "2025-02-23T02:59:59+01:00",
    to: "2025-02-23T02:00:00+00:00",
};

fn at(text: &str) -> Timestamp {
    let time: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_millis(time.as_millisecond()).unwrap()
}

fn rule(timing: &str, zone: &str) -> Rule {
    Rule::parse(&RuleSpec {
        timing: timing.to_owned(),
        zone: Some(zone.to_owned()),
        ..RuleSpec::default()
    })
    .unwrap()
}

fn hours(time: Timestamp, hours: i64) -> Timestamp {
    Timestamp::clamped(time.millis() + hours * 3_600_000)
}

/// The firings from two hours before the change to two hours after it, as local times without their date.
#[track_caller]
fn assert_firings(change: &Change, timing: &str, expected: &[&str]) {
    let (rule, change_at) = (rule(timing, change.zone), at(change.at));
    // The clock changes as the table says.
    let before = Timestamp::clamped(change_at.millis() - 1_000);
    assert_eq!(rule.local_text(before), change.from);
    assert_eq!(rule.local_text(change_at), change.to);
    let (from, to) = (hours(change_at, -2), hours(change_at, 2));
    let firings = rule.between(from, to, 100).times;
    let texts: Vec<_> = firings.iter().map(|time| rule.local_text(*time)).collect();
    let times: Vec<_> = texts.iter().map(|text| &text[11..]).collect();
    assert_eq!(times, expected, "'{timing}' in {}", change.zone);
    assert_eq!(rule.count(from, to), expected.len() as u64);
}

#[test]
fn g_05_a_fixed_time_in_a_gap_fires_at_the_first_instant_after_it() {
    for (change, timing, fires_at) in [
        (BERLIN_GAP, "30 2 * * *", "03:00:00+02:00"),
        (BERLIN_GAP, "0 2 * * *", "03:00:00+02:00"),
        (BERLIN_GAP, "59 59 2 30 3 *", "03:00:00+02:00"),
        (NEW_YORK_GAP, "30 2 * * *", "03:00:00-04:00"),
        (LORD_HOWE_GAP, "15 2 * * *", "02:30:00+11:00"),
        (CASABLANCA_GAP, "30 2 * * *", "03:00:00+01:00"),
        // The time after the gap is itself one of the rule: one firing, not two.
        (
            BERLIN_GAP,
            "0,30 2,3 * * *",
            "03:00:00+02:00 03:30:00+02:00",
        ),
        // All times of the gap together are one firing.
        (NEW_YORK_GAP, "0-59 2 * * *", "03:00:00-04:00"),
        (LORD_HOWE_GAP, "0,15,29,30 2 * * *", "02:30:00+11:00"),
    ] {
        let expected: Vec<_> = fires_at.split(' ').collect();
        assert_firings(&change, timing, &expected);
    }
}

#[test]
fn g_05_a_repeating_rule_skips_the_times_of_a_gap() {
    assert_firings(&BERLIN_GAP, "*/30 2 * * *", &[]);
    assert_firings(&NEW_YORK_GAP, "* 2 * * *", &[]);
    assert_firings(
        &BERLIN_GAP,
        "30 * * * *",
        &[
            "00:30:00+01:00",
            "01:30:00+01:00",
            "03:30:00+02:00",
            "04:30:00+02:00",
        ],
    );
    assert_firings(
        &LORD_HOWE_GAP,
        "*/20 * * * *",
        &[
            "00:00:00+10:30",
            "00:20:00+10:30",
            "00:40:00+10:30",
            "01:00:00+10:30",
            "01:20:00+10:30",
            "01:40:00+10:30",
            "02:40:00+11:00",
            "03:00:00+11:00",
            "03:20:00+11:00",
            "03:40:00+11:00",
            "04:00:00+11:00",
            "04:20:00+11:00",
        ],
    );
    assert_firings(
        &CASABLANCA_GAP,
        "0 * * * *",
        &[
            "00:00:00+00:00",
            "01:00:00+00:00",
            "03:00:00+01:00",
            "04:00:00+01:00",
        ],
    );
}

#[test]
fn g_05_a_fixed_time_in_an_overlap_fires_once_at_its_first_occurrence() {
    for (change, timing, fires_at) in [
        (BERLIN_OVERLAP, "30 2 * * *", "02:30:00+02:00"),
        (
            BERLIN_OVERLAP,
            "0 2,3 * * *",
            "02:00:00+02:00 03:00:00+01:00",
        ),
        (NEW_YORK_OVERLAP, "30 1 * * *", "01:30:00-04:00"),
        (NEW_YORK_OVERLAP, "0 2 * * *", "02:00:00-05:00"),
        (LORD_HOWE_OVERLAP, "45 1 * * *", "01:45:00+11:00"),
        (
            CASABLANCA_OVERLAP,
            "0,59 2 * * *",
            "02:00:00+01:00 02:59:00+01:00",
        ),
    ] {
        let expected: Vec<_> = fires_at.split(' ').collect();
        assert_firings(&change, timing, &expected);
    }
}

#[test]
fn g_05_a_repeating_rule_fires_in_both_passes_of_an_overlap() {
    assert_firings(
        &BERLIN_OVERLAP,
        "*/30 2 * * *",
        &[
            "02:00:00+02:00",
            "02:30:00+02:00",
            "02:00:00+01:00",
            "02:30:00+01:00",
        ],
    );
    assert_firings(
        &NEW_YORK_OVERLAP,
        "0 * * * *",
        &[
            "00:00:00-04:00",
            "01:00:00-04:00",
            "01:00:00-05:00",
            "02:00:00-05:00",
        ],
    );
    // The local half hour from 01:30 is repeated, the one before it is not.
    assert_firings(
        &LORD_HOWE_OVERLAP,
        "*/15 1 * * *",
        &[
            "01:00:00+11:00",
            "01:15:00+11:00",
            "01:30:00+11:00",
            "01:45:00+11:00",
            "01:30:00+10:30",
            "01:45:00+10:30",
        ],
    );
    assert_firings(
        &CASABLANCA_OVERLAP,
        "59 * * * *",
        &[
            "01:59:00+01:00",
            "02:59:00+01:00",
            "02:59:00+00:00",
            "03:59:00+00:00",
        ],
    );
}

#[test]
fn g_05_in_a_zone_without_changes_every_day_is_the_same() {
    // The days of the other tables, and the same rules.
    for day in ["2025-03-09", "2025-03-30", "2025-10-26", "2025-11-02"] {
        let from = at(&format!("{day}T00:00:00+05:30"));
        for (timing, count) in [
            ("30 2 * * *", 1),
            ("*/30 2 * * *", 2),
            ("0 * * * *", 24),
            ("*/15 * * * *", 96),
            ("30 2,14 * * *", 2),
        ] {
            let rule = rule(timing, "Asia/Kolkata");
            let firings = rule.between(from, hours(from, 24), 1_000).times;
            assert_eq!(firings.len(), count, "{timing} on {day}");
        }
        let rule = rule("30 2 * * *", "Asia/Kolkata");
        let next = rule.next_after(from).unwrap();
        assert_eq!(rule.local_text(next), format!("{day}T02:30:00+05:30"));
        assert_eq!(next, at(&format!("{day}T02:30:00+05:30")));
    }
}

#[test]
fn g_05_a_day_that_a_zone_leaves_out_is_a_gap_like_any_other() {
    // Samoa had no 30 December 2011: the clock went from the end of the 29th to the beginning of the 31st.
    let from = at("2011-12-30T00:00:00Z");
    for (timing, expected) in [
        ("0 12 30 12 *", &["2011-12-31T00:00:00+14:00"][..]),
        (
            "0 12 * * *",
            &["2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"],
        ),
        ("0 */12 30 12 *", &[]),
    ] {
        let rule = rule(timing, "Pacific/Apia");
        let firings = rule.between(from, hours(from, 24), 10).times;
        let texts: Vec<_> = firings.iter().map(|time| rule.local_text(*time)).collect();
        assert_eq!(texts, expected, "{timing}");
    }
}

#[test]
fn g_05_an_interval_does_not_see_changes_of_the_clock() {
    let rule = Rule::parse(&RuleSpec {
        timing: "@every 2h".into(),
        zone: Some("Europe/Berlin".into()),
        anchor: Some(at("2025-10-26T00:00:00+02:00")),
        ..RuleSpec::default()
    })
    .unwrap();
    let firings = rule.between(at("2025-10-25T22:00:00Z"), at("2025-10-26T06:00:00Z"), 10);
    let texts: Vec<_> = firings
        .times
        .iter()
        .map(|time| rule.local_text(*time))
        .collect();
    let expected = [
        "2025-10-26T00:00:00+02:00",
        "2025-10-26T02:00:00+02:00",
        "2025-10-26T03:00:00+01:00",
        "2025-10-26T05:00:00+01:00",
    ];
    assert_eq!(texts, expected);
}
