//! What a rule may be, and when it fires.

use dueline_domain::{RuleSpec, Timestamp};
use dueline_schedule::{Rule, RuleError, RuleFault, RuleField};

fn parse(timing: &str) -> Result<Rule, RuleError> {
    Rule::parse(&RuleSpec {
        timing: timing.to_owned(),
        ..RuleSpec::default()
    })
}

fn at(text: &str) -> Timestamp {
    let time: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_millis(time.as_millisecond()).unwrap()
}

/// The first firings of a rule in UTC after a Thursday.
fn firings(timing: &str, count: usize) -> Vec<String> {
    let rule = parse(timing).unwrap();
    let (from, to) = (at("2026-01-01T00:00:00Z"), Timestamp::MAX);
    let times = rule.between(from, to, count).times;
    let texts = times.iter().map(|time| rule.local_text(*time));
    texts.map(|text| text.replace("+00:00", "Z")).collect()
}

#[test]
fn f_100_a_text_that_is_no_rule_is_refused_with_its_field_and_reason() {
    use RuleFault::{
        Empty, FieldCount, InvalidSyntax, NeverFires, OutOfRange, TooLong, UnknownName,
    };
    use RuleField::{DayOfMonth, DayOfWeek, Hour, Minute, Month, Second, Timing};
    let long = format!("{}0 * * * *", "0,".repeat(130));
    let long_interval = format!("@every {}s", "0".repeat(300));
    for (text, field, reason) in [
        ("", Timing, Empty),
        (" \t ", Timing, Empty),
        ("2 1", Timing, FieldCount),
        ("* * * * * * *", Timing, FieldCount),
        ("0 0 1 1 * 2030", DayOfWeek, OutOfRange),
        (&long, Timing, TooLong),
        (&long_interval, Timing, TooLong),
        ("@reboot", Timing, UnknownName),
        ("@daily @daily", Timing, UnknownName),
        ("@every", Timing, InvalidSyntax),
        ("@every 5", Timing, InvalidSyntax),
        ("@every 0s", Timing, OutOfRange),
        ("60 * * * * *", Second, OutOfRange),
        ("60 * * * *", Minute, OutOfRange),
        ("99999999999999999999 * * * *", Minute, OutOfRange),
        ("0 24 * * *", Hour, OutOfRange),
        ("0 0 0 * *", DayOfMonth, OutOfRange),
        ("0 0 32 * *", DayOfMonth, OutOfRange),
        ("0 0 32W * *", DayOfMonth, OutOfRange),
        ("0 0 * 13 *", Month, OutOfRange),
        ("0 0 * * 8", DayOfWeek, OutOfRange),
        ("5-1 * * * *", Minute, OutOfRange),
        ("0 0 * * FRI-MON", DayOfWeek, OutOfRange),
        ("*/0 * * * *", Minute, OutOfRange),
        ("*/60 * * * *", Minute, OutOfRange),
        ("soon * * * *", Minute, InvalidSyntax),
        ("-1 * * * *", Minute, InvalidSyntax),
        ("+1 * * * *", Minute, InvalidSyntax),
        ("1.5 * * * *", Minute, InvalidSyntax),
        ("1- * * * *", Minute, InvalidSyntax),
        ("1-2-3 * * * *", Minute, InvalidSyntax),
        ("*-3 * * * *", Minute, InvalidSyntax),
        ("*,3 * * * *", Minute, InvalidSyntax),
        ("5/10 * * * *", Minute, InvalidSyntax),
        ("/10 * * * *", Minute, InvalidSyntax),
        ("*/5/5 * * * *", Minute, InvalidSyntax),
        ("? * * * *", Minute, InvalidSyntax),
        ("L * * * *", Minute, InvalidSyntax),
        ("MON * * * *", Minute, InvalidSyntax),
        ("٣ * * * *", Minute, InvalidSyntax),
        ("\u{1b}[31m * * * *", Minute, InvalidSyntax),
        // The cron library accepts all of these, and makes something else of them.
        (", * * * *", Minute, InvalidSyntax),
        ("1,,2 * * * *", Minute, InvalidSyntax),
        ("1, * * * *", Minute, InvalidSyntax),
        ("0 0 15W9 * *", DayOfMonth, InvalidSyntax),
        ("0 0 L,LW * *", DayOfMonth, InvalidSyntax),
        ("0 0 * * L", DayOfWeek, InvalidSyntax),
        ("0 0 * * +", DayOfWeek, InvalidSyntax),
        ("0 0 * * MONTUE", DayOfWeek, InvalidSyntax),
        ("0 0 * * 1-5L", DayOfWeek, InvalidSyntax),
        ("0 0 * * 5#6", DayOfWeek, InvalidSyntax),
        ("0 0 * * 5#", DayOfWeek, InvalidSyntax),
        ("0 0 * * #1", DayOfWeek, InvalidSyntax),
        ("0 0 * L *", Month, InvalidSyntax),
        ("0 0 L-3 * *", DayOfMonth, InvalidSyntax),
        ("0 0 W * *", DayOfMonth, InvalidSyntax),
        // Days that no year has.
        ("0 0 31 2 *", Timing, NeverFires),
        ("0 0 30 FEB *", Timing, NeverFires),
        ("* * 31 4,6,9,11 ?", Timing, NeverFires),
        ("0 0 1 * +MON#2", Timing, NeverFires),
    ] {
        let error = parse(text).map(drop).expect_err(text);
        assert_eq!((error.field(), error.reason()), (field, reason), "'{text}'");
        assert!(!error.message().is_empty());
    }
}

#[test]
fn f_100_errors_name_what_is_wrong() {
    let text = |timing| parse(timing).map(drop).unwrap_err().to_string();
    assert_eq!(
        text("60 * * * * *"),
        "timing.second: 60 is not within 0 to 59"
    );
    assert_eq!(
        text("2 1"),
        "timing: '2 1' has 2 fields; a cron expression has 5 (minute, hour, day of month, month, day of week) or 6 \
         (second first)"
    );
    assert_eq!(text("1,,2 * * * *"), "timing.minute: has an empty item");
    assert_eq!(text("0 0 31 2 *"), "timing: matches no day of any year");
}

#[test]
fn f_100_an_expression_has_five_or_six_fields_names_and_modifiers() {
    for (timing, first, second) in [
        ("*/5 * * * *", "01-01T00:00:00Z", "01-01T00:05:00Z"),
        ("*/2 * * * * *", "01-01T00:00:00Z", "01-01T00:00:02Z"),
        ("10-40/10 3 * * *", "01-01T03:10:00Z", "01-01T03:20:00Z"),
        ("0 0 1 JAN,jul *", "01-01T00:00:00Z", "07-01T00:00:00Z"),
        ("0 9 * * mon-fri", "01-01T09:00:00Z", "01-02T09:00:00Z"),
        ("0 9 * * SAT-SUN", "01-03T09:00:00Z", "01-04T09:00:00Z"),
        ("0 9 * * 0", "01-04T09:00:00Z", "01-11T09:00:00Z"),
        ("0 9 * * 7", "01-04T09:00:00Z", "01-11T09:00:00Z"),
        ("0 0 L * *", "01-31T00:00:00Z", "02-28T00:00:00Z"),
        ("0 0 LW * *", "01-30T00:00:00Z", "02-27T00:00:00Z"),
        ("0 0 15W * *", "01-15T00:00:00Z", "02-16T00:00:00Z"),
        ("0 0 1W 8 *", "08-03T00:00:00Z", "2027-08-02T00:00:00Z"),
        ("0 0 * * 5L", "01-30T00:00:00Z", "02-27T00:00:00Z"),
        ("0 0 * * FRI#L", "01-30T00:00:00Z", "02-27T00:00:00Z"),
        ("0 0 * * MON#2", "01-12T00:00:00Z", "02-09T00:00:00Z"),
        // One of the day fields is enough, but with + both must match.
        ("0 0 13 * FRI", "01-02T00:00:00Z", "01-09T00:00:00Z"),
        ("0 0 13 * +FRI", "02-13T00:00:00Z", "03-13T00:00:00Z"),
        ("0 0 13 * ?", "01-13T00:00:00Z", "02-13T00:00:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"),
        ("@yearly", "01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("@annually", "01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("@Monthly", "01-01T00:00:00Z", "02-01T00:00:00Z"),
        ("@weekly", "01-04T00:00:00Z", "01-11T00:00:00Z"),
        ("@daily", "01-01T00:00:00Z", "01-02T00:00:00Z"),
        ("@midnight", "01-01T00:00:00Z", "01-02T00:00:00Z"),
        ("@hourly", "01-01T00:00:00Z", "01-01T01:00:00Z"),
        ("@every 45m", "01-01T00:00:00Z", "01-01T00:45:00Z"),
    ] {
        let full = |text: &str| match text.len() {
            15 => format!("2026-{text}"),
            _ => text.to_owned(),
        };
        assert_eq!(firings(timing, 2), [full(first), full(second)], "{timing}");
    }
}

#[test]
fn f_100_every_two_seconds_are_ten_firings_in_twenty_one_seconds() {
    for timing in ["*/2 * * * * *", "@every 2s"] {
        let rule = parse(timing).unwrap();
        let from = at("2026-05-05T05:05:04.001Z");
        let to = Timestamp::clamped(from.millis() + 21_000);
        assert_eq!(rule.between(from, to, 100).times.len(), 10, "{timing}");
    }
}

#[test]
fn f_104_the_next_firing_follows_from_the_rule_and_not_from_the_end_of_a_run() {
    // A run of 7 s every 10 s: whenever in between the question is asked, the answer is the same.
    let rule = parse("@every 10s").unwrap();
    let start = at("2026-01-01T00:00:10Z");
    for asked_after_ms in [0, 1, 6_999, 7_000, 9_999] {
        let asked = Timestamp::clamped(start.millis() + asked_after_ms);
        assert_eq!(rule.next_after(asked), Some(at("2026-01-01T00:00:20Z")));
    }
    let cron = parse("*/10 * * * * *").unwrap();
    let asked = at("2026-01-01T00:00:17Z");
    assert_eq!(cron.next_after(asked), Some(at("2026-01-01T00:00:20Z")));
}

#[test]
fn f_104_an_interval_does_not_drift_in_a_million_firings() {
    let rule = Rule::parse(&RuleSpec {
        timing: "@every 7s".into(),
        anchor: Some(at("2026-01-01T00:00:03.500Z")),
        ..RuleSpec::default()
    })
    .unwrap();
    let anchor = at("2026-01-01T00:00:03.500Z");
    let mut time = anchor;
    for n in 1..=1_000_000 {
        time = rule.next_after(time).unwrap();
        assert_eq!(time.millis(), anchor.millis() + n * 7_000);
    }
}

#[test]
fn g_05_a_rule_fires_from_its_start_and_before_its_end() {
    let (start, end) = (at("2026-03-01T12:00:00Z"), at("2026-03-01T13:00:00Z"));
    for timing in ["*/15 * * * *", "@every 15m"] {
        let rule = Rule::parse(&RuleSpec {
            timing: timing.into(),
            start: Some(start),
            end: Some(end),
            ..RuleSpec::default()
        })
        .unwrap();
        assert_eq!(rule.first(), Some(start));
        assert_eq!(rule.next_after(Timestamp::EPOCH), Some(start));
        let firings = rule.between(Timestamp::EPOCH, Timestamp::MAX, 10);
        assert_eq!((firings.times.len(), firings.rest), (4, None));
        assert_eq!(rule.count(Timestamp::EPOCH, Timestamp::MAX), 4);
        let last = at("2026-03-01T12:45:00Z");
        assert_eq!(firings.times.last(), Some(&last));
        assert_eq!(
            rule.from_last(1, Timestamp::EPOCH, Timestamp::MAX),
            Some(last)
        );
        // The rule says that it does not fire again.
        assert_eq!(rule.next_after(last), None);
        assert_eq!(rule.next_after(Timestamp::MAX), None);
    }
}

#[test]
fn g_05_a_page_of_firings_says_where_the_rest_begins() {
    let rule = parse("@daily").unwrap();
    let (from, to) = (at("2026-01-01T00:00:00Z"), at("2026-01-04T00:00:00Z"));
    let page = rule.between(from, to, 2);
    assert_eq!(page.times, [from, at("2026-01-02T00:00:00Z")]);
    assert_eq!(page.rest, Some(at("2026-01-03T00:00:00Z")));
    let rest = rule.between(page.rest.unwrap(), to, 2);
    assert_eq!(rest.times, [at("2026-01-03T00:00:00Z")]);
    assert_eq!(rest.rest, None);
    assert_eq!(rule.from_last(3, from, to), Some(from));
    assert_eq!(rule.from_last(4, from, to), None);
    assert_eq!(rule.from_last(0, from, to), None);
    assert_eq!(rule.from_last(1, to, from), None);
}

#[test]
fn g_05_ranges_zones_and_anchors_that_make_no_sense_are_refused() {
    let (early, late) = (at("2026-01-01T00:00:00Z"), at("2026-02-01T00:00:00Z"));
    let spec = |timing: &str, start, end| RuleSpec {
        timing: timing.to_owned(),
        start,
        end,
        ..RuleSpec::default()
    };
    let zone = RuleSpec {
        zone: Some("Europe/Atlantis".into()),
        ..spec("@daily", None, None)
    };
    let anchor = RuleSpec {
        anchor: Some(early),
        ..spec("@daily", None, None)
    };
    for (spec, field, reason) in [
        (
            spec("@daily", Some(late), Some(early)),
            RuleField::End,
            RuleFault::EmptyRange,
        ),
        (
            spec("@daily", Some(late), Some(late)),
            RuleField::End,
            RuleFault::EmptyRange,
        ),
        (
            spec("@daily", None, Some(Timestamp::EPOCH)),
            RuleField::End,
            RuleFault::EmptyRange,
        ),
        (
            spec("0 0 1 6 *", Some(early), Some(late)),
            RuleField::End,
            RuleFault::NeverFires,
        ),
        (zone, RuleField::Zone, RuleFault::UnknownZone),
        (anchor, RuleField::Anchor, RuleFault::NotApplicable),
    ] {
        let error = Rule::parse(&spec).unwrap_err();
        assert_eq!((error.field(), error.reason()), (field, reason), "{spec:?}");
    }
}

#[test]
fn g_05_a_rule_whose_times_all_fall_into_gaps_does_not_fire_again() {
    // On the last Sunday of March Berlin has had no such time since 1996.
    let rule = Rule::parse(&RuleSpec {
        timing: "*/30 2 * 3 SUN#L".into(),
        zone: Some("Europe/Berlin".into()),
        ..RuleSpec::default()
    })
    .unwrap();
    assert!(rule.next_after(Timestamp::EPOCH).is_some());
    assert_eq!(rule.next_after(at("2026-01-01T00:00:00Z")), None);
}

#[test]
fn g_05_the_whole_range_of_times_is_covered() {
    let rule = Rule::parse(&RuleSpec {
        timing: "0 12 * * *".into(),
        zone: Some("Pacific/Kiritimati".into()),
        ..RuleSpec::default()
    })
    .unwrap();
    assert!(rule.first().is_some());
    let late = at("9999-12-01T00:00:00Z");
    assert!(rule.next_after(late).is_some());
    assert!(rule.next_after(Timestamp::MAX).is_none());
    let days = rule.count(late, Timestamp::MAX);
    assert!((29..=31).contains(&days), "{days}");
    assert!(!rule.local_text(Timestamp::MAX).is_empty());
}
