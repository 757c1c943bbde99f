//! Which firings are carried out after some time without a consumer.

use std::time::Duration;

use dueline_domain::{CatchUp, CatchUpError, CatchUpPolicy, RuleSpec, Timestamp};
use dueline_schedule::{DueFirings, Rule, SkippedFirings};
use proptest::prelude::*;

const HOUR_MS: i64 = 3_600_000;

fn rule(timing: &str) -> Rule {
    Rule::parse(&RuleSpec {
        timing: timing.to_owned(),
        ..RuleSpec::default()
    })
    .unwrap()
}

fn policy(catch_up: CatchUp, grace_s: u64) -> CatchUpPolicy {
    CatchUpPolicy::new(catch_up, Duration::from_secs(grace_s)).unwrap()
}

/// `hour` hours after some midnight.
fn at(hour: i64) -> Timestamp {
    Timestamp::clamped(1_700_006_400_000 + hour * HOUR_MS)
}

fn after(time: Timestamp, millis: i64) -> Timestamp {
    Timestamp::clamped(time.millis() + millis)
}

#[test]
fn g_05_a_firing_that_is_due_now_is_carried_out_under_every_policy() {
    for catch_up in [CatchUp::None, CatchUp::Latest, CatchUp::All { max: 5 }] {
        let due = DueFirings::decide(
            policy(catch_up, 60),
            &rule("@hourly"),
            at(1),
            after(at(2), 300),
            None,
        );
        let expected = DueFirings {
            firings: vec![at(2)],
            caught_up: 0,
            skipped: None,
            next: Some(at(3)),
        };
        assert_eq!(due, expected, "{catch_up:?}");
    }
}

#[test]
fn g_05_missed_firings_are_skipped_made_up_for_once_or_up_to_a_cap() {
    // The last decided firing is that of hour 1; the consumer comes back half an hour after that of hour 9.
    let now = after(at(9), HOUR_MS / 2);
    for (catch_up, made_up, skipped_to) in [
        (CatchUp::None, vec![], Some((8, 9))),
        (CatchUp::Latest, vec![9], Some((7, 8))),
        (CatchUp::All { max: 3 }, vec![7, 8, 9], Some((5, 6))),
        (CatchUp::All { max: 8 }, (2..=9).collect(), None),
        (CatchUp::All { max: 9 }, (2..=9).collect(), None),
    ] {
        let due = DueFirings::decide(policy(catch_up, 60), &rule("@hourly"), at(1), now, None);
        let made_up: Vec<_> = made_up.into_iter().map(at).collect();
        let skipped = skipped_to.map(|(count, last)| SkippedFirings {
            count,
            first: at(2),
            last: at(last),
        });
        assert_eq!(due.firings, made_up, "{catch_up:?}");
        assert_eq!((due.caught_up, due.skipped), (made_up.len(), skipped));
        assert_eq!(due.next, Some(at(10)));
    }
}

#[test]
fn a_22_by_default_one_firing_makes_up_for_all_and_none_if_one_is_due_anyway() {
    let default = CatchUpPolicy::default();
    let missed = DueFirings::decide(
        default,
        &rule("@hourly"),
        at(1),
        after(at(9), HOUR_MS / 2),
        None,
    );
    assert_eq!((missed.firings, missed.caught_up), (vec![at(9)], 1));
    let on_time = DueFirings::decide(default, &rule("@hourly"), at(1), after(at(9), 1_000), None);
    assert_eq!((on_time.firings, on_time.caught_up), (vec![at(9)], 0));
    assert_eq!(on_time.skipped.unwrap().count, 7);
}

#[test]
fn g_05_a_schedule_with_few_firings_left_carries_out_no_more() {
    let all = policy(CatchUp::All { max: 100 }, 60);
    let now = after(at(9), 1_000);
    let due = |left| DueFirings::decide(all, &rule("@hourly"), at(1), now, Some(left));
    assert_eq!((due(0).firings, due(0).next), (vec![], None));
    assert_eq!(
        (due(3).firings, due(3).next),
        (vec![at(2), at(3), at(4)], None)
    );
    assert_eq!((due(8).firings.len(), due(8).next), (8, None));
    assert_eq!((due(8).caught_up, due(9).caught_up), (7, 7));
    assert_eq!((due(9).firings.len(), due(9).next), (8, Some(at(10))));
}

#[test]
fn g_05_a_clock_that_goes_back_decides_nothing_twice() {
    let due = DueFirings::decide(
        CatchUpPolicy::default(),
        &rule("@hourly"),
        at(5),
        at(2),
        None,
    );
    let expected = DueFirings {
        next: Some(at(6)),
        ..DueFirings::default()
    };
    assert_eq!(due, expected);
}

#[test]
fn g_05_a_year_of_missed_seconds_is_counted_without_a_walk_over_them() {
    let now = after(at(9_000), 500);
    for timing in ["* * * * * *", "@every 1s"] {
        let due = DueFirings::decide(
            policy(CatchUp::All { max: 10 }, 0),
            &rule(timing),
            at(0),
            now,
            None,
        );
        assert_eq!(due.firings.len(), 10);
        let skipped = due.skipped.unwrap();
        assert_eq!(skipped.count, 9_000 * 3_600 - 10, "{timing}");
        assert_eq!(skipped.last, after(at(9_000), -10_000));
    }
}

#[test]
fn g_05_caps_and_graces_have_limits() {
    let new = |catch_up, grace_s| CatchUpPolicy::new(catch_up, Duration::from_secs(grace_s));
    let all = |max| CatchUp::All { max };
    assert_eq!(new(all(0), 0), Err(CatchUpError::Cap));
    assert_eq!(new(all(1_001), 0), Err(CatchUpError::Cap));
    assert_eq!(new(CatchUp::None, 3_601), Err(CatchUpError::Grace));
    assert!(new(all(1_000), 3_600).is_ok());
}

fn catch_ups() -> impl Strategy<Value = CatchUp> {
    prop_oneof![
        Just(CatchUp::None),
        Just(CatchUp::Latest),
        (1..20_u32).prop_map(|max| CatchUp::All { max }),
    ]
}

proptest! {
    /// However often a consumer looks and however long it pauses: each firing is carried out once or counted as skipped
    /// once, and none that was on time is skipped.
    #[test]
    fn g_05_every_firing_is_carried_out_or_counted_once(
        timing in prop_oneof![Just("*/7 * * * * *"), Just("@every 11s"), Just("0 */3 * * * *")],
        catch_up in catch_ups(),
        grace_s in 0..120_u64,
        pauses_ms in proptest::collection::vec(prop_oneof![0..3_000_i64, 0..900_000_i64], 1..40),
    ) {
        let (rule, policy) = (rule(timing), policy(catch_up, grace_s));
        let (mut decided, mut carried_out, mut skipped) = (at(0), Vec::new(), 0);
        for pause_ms in pauses_ms {
            let now = after(decided, pause_ms);
            let due = DueFirings::decide(policy, &rule, decided, now, None);
            prop_assert_eq!(due.next, rule.next_after(now));
            if let Some(some) = due.skipped {
                skipped += some.count;
                prop_assert!(some.last.millis() < now.millis() - grace_s as i64 * 1_000);
                prop_assert!(some.first > decided && some.first <= some.last);
                prop_assert!(due.firings.first().is_none_or(|first| *first > some.last));
            }
            prop_assert!(due.firings.iter().all(|time| *time > decided && *time <= now));
            carried_out.extend(due.firings);
            decided = now;
        }
        prop_assert!(carried_out.is_sorted_by(|a, b| a < b));
        let all = rule.count(after(at(0), 1), after(decided, 1));
        prop_assert_eq!(carried_out.len() as u64 + skipped, all);
    }
}
