//! What a consumer does with a schedule, and what users may change about one.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    Backfill, CatchUp, CatchUpPolicy, FiringEnd, JobName, Overlap, RuleSpec, Schedule,
    ScheduleName, ScheduleSpec, Timestamp, WriteId,
};
use dueline_schedule::{Change, ChangeError, FiringStatus, Rule, RuleFault, Turn};

const SECOND: Duration = Duration::from_secs(1);

/// A time in seconds after a minute begins.
fn at(secs: u64) -> Timestamp {
    Timestamp::clamped(1_700_000_040_000).after(SECOND * u32::try_from(secs).unwrap())
}

fn write(number: u64) -> WriteId {
    WriteId::from_random(number)
}

fn every(secs: u64) -> RuleSpec {
    RuleSpec {
        timing: format!("@every {secs}s"),
        ..RuleSpec::default()
    }
}

fn spec(overlap: Overlap) -> ScheduleSpec {
    ScheduleSpec {
        rule: every(10),
        overlap,
        ..ScheduleSpec::default()
    }
}

fn created(spec: ScheduleSpec) -> Schedule {
    let job = JobName::parse("mail").unwrap();
    let name = ScheduleName::parse("often").unwrap();
    Change::create(job, name, spec, Arc::default(), at(0), write(1)).unwrap()
}

fn turn(schedule: &Schedule, now: Timestamp, active: &[FiringStatus]) -> Option<Turn> {
    let rule = Rule::parse(&schedule.spec.rule).unwrap();
    Turn::of(schedule, &rule, now, active)
}

fn nominal(turn: &Turn) -> Vec<Timestamp> {
    turn.create.iter().map(|task| task.nominal_at).collect()
}

fn apply(schedule: &Schedule, change: Change, now: Timestamp) -> Schedule {
    change.apply(schedule.clone(), now, write(9)).unwrap()
}

#[test]
fn f_104_the_next_firing_follows_from_the_rule_and_not_from_the_end_of_a_task() {
    use FiringStatus::{Ended, Unfinished};
    // A task of 7 s every 10 s.
    let schedule = created(spec(Overlap::QueueOne));
    assert_eq!(schedule.wake_at(), Some(at(10)));
    assert!(turn(&schedule, at(9), &[]).is_none(), "never early");
    let first = turn(&schedule, at(10), &[]).unwrap();
    assert_eq!(nominal(&first), [at(10)]);
    assert_eq!(first.create[0].due_at, at(10));
    assert_eq!(first.after.wake_at(), Some(at(20)));
    // The consumer was three seconds late.
    let second = turn(&first.after, at(23), &[Ended]).unwrap();
    assert_eq!(nominal(&second), [at(20)]);
    assert_eq!(second.after.wake_at(), Some(at(30)));
    let third = turn(&second.after, at(30), &[Unfinished]).unwrap();
    assert_eq!(nominal(&third), [], "the second task still runs");
    assert_eq!(third.after.wake_at(), Some(at(31)), "looks again soon");
    let waits = turn(&third.after, at(31), &[Unfinished]).unwrap();
    assert!(waits.create.is_empty());
    let released = turn(&waits.after, at(33), &[Ended]).unwrap();
    assert_eq!(nominal(&released), [at(30)], "with its own nominal time");
    assert_eq!(released.after.wake_at(), Some(at(40)));
    assert_eq!(released.after.counts.created, 3);
}

#[test]
fn g_05_each_overlap_policy_decides_about_a_firing_while_a_task_is_unfinished() {
    use FiringStatus::Unfinished;
    for (overlap, tasks, cancelled, queued, skipped) in [
        (Overlap::Skip, vec![], 0, None, 1),
        (Overlap::QueueOne, vec![], 0, Some(at(20)), 0),
        (Overlap::Allow, vec![at(20)], 0, None, 0),
        (Overlap::CancelPrevious, vec![at(20)], 1, None, 0),
    ] {
        let first = turn(&created(spec(overlap)), at(10), &[]).unwrap();
        let second = turn(&first.after, at(20), &[Unfinished]).unwrap();
        assert_eq!(nominal(&second), tasks, "{overlap:?}");
        assert_eq!(second.cancel.len(), cancelled, "{overlap:?}");
        let waits = second.after.queued.map(|queued| queued.nominal_at);
        assert_eq!(waits, queued, "{overlap:?}");
        assert_eq!(second.after.counts.skipped, skipped, "{overlap:?}");
        if cancelled > 0 {
            assert_eq!(second.cancel[0], first.create[0].id);
        }
    }
}

#[test]
fn g_05_of_several_due_firings_that_cancel_the_previous_one_the_last_gets_a_task() {
    use FiringStatus::{Missing, Unfinished};
    let late = turn(&created(spec(Overlap::CancelPrevious)), at(35), &[]).unwrap();
    assert_eq!(nominal(&late), [at(30)]);
    let interrupted = "an interrupted turn may have created their tasks";
    assert_eq!(late.cancel.len(), 2, "{interrupted}");
    let after = late.after;
    assert_eq!((&after.active[..], after.queued), (&[at(30)][..], None));
    assert_eq!((after.counts.created, after.counts.skipped), (1, 2));
    let dropped = &after.recent[0];
    assert_eq!((dropped.end, dropped.count), (FiringEnd::Dropped, 2));
    assert_eq!((dropped.first, dropped.last), (at(10), at(20)));
    assert_eq!(turn(&after, at(36), &[Unfinished]), None);
    // A task that is missing is not created again when it would be cancelled at once.
    let next = turn(&after, at(40), &[Missing]).unwrap();
    assert_eq!(nominal(&next), [at(40)]);
    assert_eq!(next.after.active, [at(40)]);
    assert_eq!(
        (next.after.counts.repaired, next.after.counts.created),
        (0, 2)
    );
}

#[test]
fn a_22_after_a_downtime_the_latest_firing_is_made_up_for_and_the_others_are_counted() {
    let schedule = created(spec(Overlap::Allow));
    let late = turn(&schedule, at(3_605), &[]).unwrap();
    assert_eq!(
        nominal(&late).len(),
        6,
        "those of the last minute are on time"
    );
    assert_eq!(late.after.counts.missed, 354);
    assert_eq!(late.after.recent[0].end, FiringEnd::Missed);
    assert_eq!(late.after.recent[0].count, 354);
    assert_eq!(late.after.wake_at(), Some(at(3_610)));
    let hourly = ScheduleSpec {
        rule: every(600),
        catch_up: CatchUpPolicy::new(CatchUp::All { max: 2 }, SECOND).unwrap(),
        overlap: Overlap::Allow,
        ..ScheduleSpec::default()
    };
    let late = turn(&created(hourly), at(3_605), &[]).unwrap();
    assert_eq!(late.create.len(), 2);
    assert_eq!(late.after.counts.missed, 4);
}

#[test]
fn g_05_a_rule_fires_no_more_than_the_limit_says() {
    let limited = ScheduleSpec {
        firings_max: Some(2),
        ..spec(Overlap::Allow)
    };
    let first = turn(&created(limited), at(10), &[]).unwrap();
    assert_eq!(first.after.wake_at(), Some(at(20)));
    let second = turn(&first.after, at(20), &[FiringStatus::Ended]).unwrap();
    assert_eq!(nominal(&second), [at(20)]);
    assert_eq!(second.after.next_at, None);
    assert_eq!(second.after.wake_at(), None);
    // A higher limit lets it fire again, from then on.
    let more = ScheduleSpec {
        firings_max: Some(3),
        ..spec(Overlap::Allow)
    };
    let raised = apply(&second.after, Change::Replace(Box::new(more)), at(55));
    assert_eq!(raised.next_at, Some(at(60)));
    let lower = ScheduleSpec {
        firings_max: Some(1),
        ..spec(Overlap::Allow)
    };
    let lowered = apply(&raised, Change::Replace(Box::new(lower)), at(56));
    assert_eq!(lowered.next_at, None);
}

#[test]
fn f_105_a_task_that_is_missing_is_created_again_once() {
    let schedule = created(spec(Overlap::QueueOne));
    let first = turn(&schedule, at(10), &[]).unwrap();
    let second = turn(&first.after, at(20), &[FiringStatus::Missing]).unwrap();
    assert_eq!(nominal(&second), [at(10)], "the second firing waits for it");
    assert_eq!(second.create[0].id, first.create[0].id);
    assert_eq!(second.after.counts.repaired, 1);
    for sweep in 0..10 {
        let status = [FiringStatus::Unfinished];
        let later = turn(&second.after, at(21 + sweep), &status).unwrap();
        assert!(later.create.is_empty(), "sweep {sweep}");
    }
}

#[test]
fn g_05_an_update_moves_the_next_firing_only_if_the_rule_changes() {
    let schedule = created(spec(Overlap::QueueOne));
    let same_rule = ScheduleSpec {
        info: "other".into(),
        overlap: Overlap::Skip,
        ..schedule.spec.clone()
    };
    let same = apply(&schedule, Change::Replace(Box::new(same_rule)), at(12));
    assert_eq!(same.next_at, Some(at(10)), "it is due, and stays so");
    assert_eq!(nominal(&turn(&same, at(12), &[]).unwrap()), [at(10)]);

    let first = turn(&schedule, at(10), &[]).unwrap();
    let waits = turn(&first.after, at(20), &[FiringStatus::Unfinished]).unwrap();
    let other_rule = ScheduleSpec {
        rule: every(60),
        ..schedule.spec.clone()
    };
    let other = apply(&waits.after, Change::Replace(Box::new(other_rule)), at(21));
    assert_eq!(other.next_at, Some(at(60)));
    assert_eq!(other.queued, None);
    let dropped = other.recent.last().unwrap();
    assert_eq!((dropped.end, dropped.first), (FiringEnd::Dropped, at(20)));
    assert_eq!(other.write, write(9));
    // Two more were due, and no consumer had decided about them.
    let late = ScheduleSpec {
        rule: every(60),
        ..schedule.spec.clone()
    };
    let late = apply(&waits.after, Change::Replace(Box::new(late)), at(41));
    let dropped = late.recent.last().unwrap();
    assert_eq!((dropped.end, dropped.count), (FiringEnd::Dropped, 3));
    assert_eq!((dropped.first, dropped.last), (at(20), at(40)));
    assert_eq!(late.next_at, Some(at(60)));

    let bad = ScheduleSpec {
        rule: RuleSpec {
            timing: "2 1".to_owned(),
            ..RuleSpec::default()
        },
        ..schedule.spec.clone()
    };
    let refused = Change::Replace(Box::new(bad)).apply(schedule, at(1), write(2));
    let Err(ChangeError::Rule(error)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error.reason(), RuleFault::FieldCount);
}

#[test]
fn g_05_a_paused_schedule_does_nothing_and_skips_what_was_due_meanwhile() {
    let pause = |by: &str, reason: &str| Change::Pause {
        by: by.into(),
        reason: reason.into(),
    };
    let schedule = created(spec(Overlap::Allow));
    let paused = apply(&schedule, pause("ann", "too much"), at(5));
    assert_eq!(paused.wake_at(), None);
    assert!(turn(&paused, at(60), &[]).is_none());
    let again = apply(&paused, pause("bob", "still"), at(30));
    let why = again.paused.clone().unwrap();
    assert_eq!((why.at, &*why.by, &*why.reason), (at(5), "bob", "still"));
    // A requested firing is carried out all the same.
    let triggered = apply(&again, Change::Trigger, at(31));
    assert_eq!(nominal(&turn(&triggered, at(31), &[]).unwrap()), [at(31)]);

    let resumed = apply(&again, Change::Resume, at(35));
    assert_eq!(resumed.next_at, Some(at(40)));
    let skipped = &resumed.recent[0];
    assert_eq!((skipped.end, skipped.count), (FiringEnd::Paused, 3));
    assert_eq!((skipped.first, skipped.last), (at(10), at(30)));
    assert_eq!(apply(&resumed, Change::Resume, at(36)).recent.len(), 1);
}

#[test]
fn g_05_requested_firings_are_carried_out_and_bounded() {
    let mut schedule = created(spec(Overlap::Allow));
    for _ in 0..Schedule::TRIGGERS_MAX {
        schedule = apply(&schedule, Change::Trigger, at(3));
    }
    let refused = Change::Trigger.apply(schedule.clone(), at(3), write(2));
    assert_eq!(refused, Err(ChangeError::TooManyRequests));
    let all = turn(&schedule, at(4), &[]).unwrap();
    let mut times = nominal(&all);
    times.dedup();
    assert_eq!(times.len(), Schedule::TRIGGERS_MAX, "each has its own task");
    assert_eq!(all.after.active.len(), Schedule::ACTIVE_MAX);
    assert_eq!(all.after.next_at, Some(at(10)), "the rule is as it was");
    assert_eq!(all.after.counts.fired, 0);
}

#[test]
fn g_05_a_backfill_carries_out_every_firing_of_its_range_once() {
    let range = |from, to| Change::Backfill(Backfill { from, to });
    let schedule = created(spec(Overlap::Skip));
    let mut now = apply(&schedule, range(at(100), at(3_100)), at(5));
    let mut times = Vec::new();
    let mut turns = 0;
    while now.wake_at() <= Some(at(6)) {
        let next = turn(&now, at(6), &[]).unwrap();
        times.extend(nominal(&next));
        now = next.after;
        turns += 1;
        assert!(turns < 10);
    }
    let expected: Vec<_> = (0..300).map(|n| at(100 + n * 10)).collect();
    assert_eq!(times, expected);
    assert_eq!((turns, now.counts.created), (2, 300));
    assert_eq!((now.next_at, now.active), (Some(at(10)), vec![]));

    for (from, to, refused) in [
        (at(10), at(10), ChangeError::EmptyRange),
        (at(11), at(20), ChangeError::NoFiring),
        (at(10), at(200_010), ChangeError::TooManyFirings(20_000)),
    ] {
        let answer = range(from, to).apply(schedule.clone(), at(5), write(2));
        assert_eq!(answer, Err(refused));
    }
}

#[test]
fn g_05_a_task_that_is_refused_is_recorded_and_the_schedule_goes_on() {
    let mut first = turn(&created(spec(Overlap::Skip)), at(10), &[]).unwrap();
    first.refused(at(10), "payload: too long");
    let after = first.after;
    assert_eq!((after.counts.created, after.counts.failed), (0, 1));
    assert_eq!(after.active, []);
    let failed = &after.recent[0];
    assert_eq!(
        (failed.end, &*failed.info),
        (FiringEnd::Failed, "payload: too long")
    );
    let second = turn(&after, at(20), &[]).unwrap();
    assert_eq!(nominal(&second), [at(20)]);
}

#[test]
fn a_clock_that_goes_back_fires_nothing_twice() {
    let first = turn(&created(spec(Overlap::Allow)), at(25), &[]).unwrap();
    assert_eq!(nominal(&first), [at(10), at(20)]);
    assert!(turn(&first.after, at(12), &[]).is_none());
    let later = turn(&first.after, at(30), &[]).unwrap();
    assert_eq!(nominal(&later), [at(30)]);
}

#[test]
fn the_history_of_a_schedule_is_bounded_and_skipped_firings_in_a_row_are_one_record() {
    let mut schedule = turn(&created(spec(Overlap::Skip)), at(10), &[])
        .unwrap()
        .after;
    for n in 2..200 {
        let status = [FiringStatus::Unfinished];
        schedule = turn(&schedule, at(n * 10), &status).unwrap().after;
    }
    assert_eq!(schedule.recent.len(), 2);
    assert_eq!(schedule.recent[1].count, 198);
    for n in 200..300 {
        let status = [FiringStatus::Ended];
        schedule = turn(&schedule, at(n * 10), &status[..schedule.active.len()])
            .unwrap()
            .after;
    }
    assert_eq!(schedule.recent.len(), Schedule::RECENT_MAX);
}
