//! Ids and jitter of firings.

use std::{collections::BTreeSet, time::Duration};

use dueline_domain::{JobName, RuleSpec, ScheduleName, TaskId, Timestamp};
use dueline_schedule::{Rule, ScheduleKey};
use proptest::prelude::*;

fn names(job: &str, name: &str) -> (JobName, ScheduleName) {
    (
        JobName::parse(job).unwrap(),
        ScheduleName::parse(name).unwrap(),
    )
}

fn rule(timing: &str) -> Rule {
    Rule::parse(&RuleSpec {
        timing: timing.to_owned(),
        ..RuleSpec::default()
    })
    .unwrap()
}

const NOON: Timestamp = match Timestamp::from_millis(1_800_014_400_000) {
    Ok(time) => time,
    Err(_) => Timestamp::MAX,
};

#[test]
fn g_05_two_consumers_derive_the_same_id_and_other_firings_have_other_ids() {
    let (job, name) = names("report", "nightly");
    let id = ScheduleKey {
        job: &job,
        name: &name,
    }
    .task_id(NOON);
    // Stored ids depend on it: this text never changes.
    assert_eq!(id.to_string(), "01a31938-0a00-8012-abfc-cd5671d8f7ef");
    let mut ids = BTreeSet::from([id]);
    // The last pair has the same letters with the border elsewhere.
    for (job, name) in [
        ("report", "nightl"),
        ("repor", "nightly"),
        ("reportn", "ightly"),
    ] {
        let (job, name) = names(job, name);
        assert!(
            ids.insert(
                ScheduleKey {
                    job: &job,
                    name: &name
                }
                .task_id(NOON)
            )
        );
    }
    for ms in 1..1_000 {
        let key = ScheduleKey {
            job: &job,
            name: &name,
        };
        assert!(ids.insert(key.task_id(NOON.after(Duration::from_millis(ms)))));
    }
}

#[test]
fn g_05_the_id_of_a_firing_is_a_uuid_that_sorts_by_its_nominal_time() {
    let (job, name) = names("report", "nightly");
    let key = ScheduleKey {
        job: &job,
        name: &name,
    };
    for millis in [0, 1, NOON.millis(), Timestamp::MAX.millis()] {
        let nominal = Timestamp::clamped(millis);
        let id = key.task_id(nominal);
        assert_eq!(TaskId::parse(&id.to_string()), Ok(id));
        let bytes = id.as_bytes();
        let mut time = [0; 8];
        time[2..].copy_from_slice(&bytes[..6]);
        assert_eq!(i64::from_be_bytes(time), millis);
        assert_eq!((bytes[6] >> 4, bytes[8] >> 6), (8, 0b10));
        // Among ids of submitted tasks too.
        let later = TaskId::from_time(millis + 1, [0; 10]);
        assert!(millis == Timestamp::MAX.millis() || id < later);
    }
}

#[test]
fn g_05_jitter_spreads_the_schedules_that_fire_at_the_same_time() {
    let rule = rule("0 * * * *");
    let jitter = Duration::from_secs(600);
    let mut tenths = [0; 10];
    for n in 0..1_000 {
        let (job, name) = names("report", &format!("s-{n}"));
        let key = ScheduleKey {
            job: &job,
            name: &name,
        };
        let delay = key.due_at(&rule, NOON, jitter).since(NOON);
        assert!(delay <= jitter);
        tenths[(delay.as_secs() / 60).min(9) as usize] += 1;
    }
    assert!(
        tenths.iter().all(|count| (60..=140).contains(count)),
        "{tenths:?}"
    );
}

#[test]
fn g_05_without_jitter_a_firing_is_due_at_its_nominal_time() {
    let (job, name) = names("report", "nightly");
    let key = ScheduleKey {
        job: &job,
        name: &name,
    };
    assert_eq!(key.due_at(&rule("@hourly"), NOON, Duration::ZERO), NOON);
}

proptest! {
    #[test]
    fn g_05_jitter_is_stable_bounded_and_keeps_the_order_of_firings(
        timing in prop_oneof![
            Just("* * * * * *"), Just("@every 90s"), Just("0 0 1 * *"), Just("0 0 * * MON"),
        ],
        name in "[a-z]{1,8}",
        from_s in 0..4_000_000_000_i64,
        jitter_ms in 0..10_000_000_u64,
    ) {
        let (rule, jitter) = (rule(timing), Duration::from_millis(jitter_ms));
        let (job, name) = names("job", &name);
        let key = ScheduleKey { job: &job, name: &name };
        let times = rule.between(Timestamp::clamped(from_s * 1_000), Timestamp::MAX, 20).times;
        for pair in times.windows(2) {
            let due = key.due_at(&rule, pair[0], jitter);
            prop_assert_eq!(due, key.due_at(&rule, pair[0], jitter));
            prop_assert!(due >= pair[0] && due <= pair[0].after(jitter));
            prop_assert!(due < pair[1]);
        }
    }
}
