//! Every verb in every state, as one table.

use std::collections::BTreeSet;

use Reason::*;
use StateKind::*;

use std::time::Duration;

use bytes::Bytes;

use super::{
    family_tests::{adopt_event, settle_event},
    *,
};
use crate::{
    EdgeKind, Jitter, JobName, Lease, NewTask, Overrides, Predecessor, Priority, RetryClass,
    TaskAddress, TaskEnd, TaskId, check_task, check_transition,
};

/// One cell of the table: the next state, or the reason of the refusal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    To(StateKind),
    No(Reason),
}

const fn to(kind: StateKind) -> Cell {
    Cell::To(kind)
}

const fn no(reason: Reason) -> Cell {
    Cell::No(reason)
}

/// The given cells for the six unfinished states, and the same refusal in all five final states.
const fn row(unfinished: [Cell; 6], finished: Reason) -> [Cell; 11] {
    let [a, b, c, d, e, f] = unfinished;
    let z = no(finished);
    [a, b, c, d, e, f, z, z, z, z, z]
}

/// The ordinary event of each verb: present token, valid lease, trigger time just passed, handler successful, a cancel
/// that refuses running tasks. Columns are waiting, new, enqueued, claimed, processing, retriable and the final states.
#[rustfmt::skip]
const TABLE: [(Verb, [Cell; 11]); 23] = [
    (Verb::Close, row([no(NotFinished); 6], Finished)),
    (Verb::Follow, row([to(StateKind::Waiting), to(New), to(Enqueued), to(Claimed), to(Processing), to(Retriable)], Finished)),
    (Verb::Release, row([to(Enqueued), no(NotWaiting), no(NotWaiting), no(NotWaiting), no(NotWaiting), no(NotWaiting)], NotWaiting)),
    (Verb::Trigger, row([to(StateKind::Waiting), to(Enqueued), to(Enqueued), to(Enqueued), to(Enqueued), to(Enqueued)], Finished)),
    (Verb::Reclaim, row([no(Moved), no(Moved), no(Moved), to(Enqueued), to(Enqueued), no(Moved)], Finished)),
    (Verb::Claim, row([no(Reason::Waiting), no(NotDue), to(Claimed), no(AlreadyClaimed), no(AlreadyClaimed), no(NotDue)], Finished)),
    (Verb::Start, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), to(Processing), no(AlreadyStarted), no(Lost)], Finished)),
    (Verb::Heartbeat, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), no(NotStarted), to(Processing), no(Lost)], Finished)),
    (Verb::Extend, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), to(Claimed), to(Processing), no(Lost)], Finished)),
    (Verb::Checkpoint, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), no(NotStarted), to(Processing), no(Lost)], Finished)),
    (Verb::Stage, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), to(Claimed), to(Processing), no(Lost)], Finished)),
    // The samples were not submitted from inside a run.
    (Verb::Adopt, row([no(NotWaiting); 6], NotWaiting)),
    (Verb::Finish, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), no(NotStarted), to(Succeeded), no(Lost)], Finished)),
    (Verb::Abandon, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), to(Enqueued), to(Enqueued), no(Lost)], Finished)),
    (Verb::Trash, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), to(Trashed), to(Trashed), no(Lost)], Finished)),
    (Verb::Cancel, row([to(Cancelled), to(Cancelled), to(Cancelled), no(Running), no(Running), to(Cancelled)], Finished)),
    (Verb::Modify, row([to(StateKind::Waiting), to(New), to(Enqueued), no(Running), no(Running), to(Retriable)], Finished)),
    (Verb::Replace, row([to(StateKind::Waiting), to(New), to(Enqueued), no(Running), no(Running), no(AlreadyStarted)], Finished)),
    (Verb::Drop, row([no(Reason::Waiting), to(Dropped), to(Dropped), no(Running), no(Running), to(Dropped)], Finished)),
    (Verb::Redrive, [
        no(NotFinished), no(NotFinished), no(NotFinished), no(NotFinished), no(NotFinished), no(NotFinished),
        no(Finished), to(New), no(Finished), to(New), no(Finished),
    ]),
    (Verb::Revive, [
        no(NotFinished), no(NotFinished), no(NotFinished), no(NotFinished), no(NotFinished), no(NotFinished),
        no(Finished), no(Finished), no(NotWaiting), no(Finished), no(Finished),
    ]),
    (Verb::Reopen, row([no(NotFinished); 6], Finished)),
    // The samples owe nothing.
    (Verb::Settle, row([no(NotFinished); 6], Moved)),
];

/// The verbs that carry a token, with a stale token: refused in every state.
#[rustfmt::skip]
const STALE: [(Verb, [Cell; 11]); 10] = [
    (Verb::Reclaim, row([no(Moved); 6], Finished)),
    (Verb::Claim, row([no(Reason::Waiting), no(NotDue), no(Lost), no(AlreadyClaimed), no(AlreadyClaimed), no(NotDue)], Finished)),
    (Verb::Start, STALE_REPORT),
    (Verb::Heartbeat, STALE_REPORT),
    (Verb::Extend, STALE_REPORT),
    (Verb::Checkpoint, STALE_REPORT),
    (Verb::Stage, STALE_REPORT),
    (Verb::Finish, STALE_REPORT),
    (Verb::Abandon, STALE_REPORT),
    (Verb::Trash, STALE_REPORT),
];

#[rustfmt::skip]
const STALE_REPORT: [Cell; 11] =
    row([no(NotClaimed), no(NotClaimed), no(Lost), no(Lost), no(Lost), no(Lost)], Finished);

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::clamped(millis)
}

pub(super) fn token(number: u64) -> Token {
    Token::from_random(number)
}

pub(super) fn write(number: u64) -> WriteId {
    WriteId::from_random(number)
}

pub(super) const RIGHT: u64 = 7;
const WRONG: u64 = 8;
pub(super) const NEXT: u64 = 9;
/// When every sample task last changed.
pub(super) const CHANGED: i64 = 10_000;
/// The trigger time of every sample task: its due time, or the end of its lease.
pub(super) const TRIGGER: i64 = 20_000;

/// A valid task in the given state.
pub(super) fn sample(kind: StateKind) -> Task {
    let id = TaskId::from_bytes([1; 16]);
    let job = JobName::parse("mail").unwrap();
    let new = NewTask::now(id, job, Bytes::from_static(b"hello"));
    let mut task = new.into_task(&Policy::default(), at(1_000), token(1), write(1), true);
    let lease = Lease {
        worker: WorkerId::parse("w@1").unwrap(),
        claimed_at: at(CHANGED),
        heartbeat_at: at(CHANGED),
        expires_at: at(TRIGGER),
        deadline_at: None,
    };
    let (token, due_at) = (token(RIGHT), at(TRIGGER));
    let (expires_at, retry_at) = (due_at, due_at);
    task.state = match kind {
        StateKind::Waiting => {
            task.options.get_or_insert_default().family = Some(Box::new(waiting_for(other())));
            State::Waiting { check_at: due_at }
        }
        New => State::New { due_at },
        Enqueued => State::Enqueued { token, expires_at },
        Claimed => State::Claimed { token, lease },
        Processing => State::Processing { token, lease },
        Retriable => State::Retriable { retry_at },
        Succeeded => State::Succeeded,
        Failed => State::Failed,
        Cancelled => State::Cancelled,
        Trashed => State::Trashed,
        Dropped => State::Dropped,
    };
    task.changed_at = at(CHANGED);
    if matches!(kind, Processing | Succeeded | Failed | Retriable) {
        task.tries = 1;
        task.started_at = Some(at(CHANGED));
    }
    task.finished_at = kind.is_final().then_some(at(CHANGED));
    assert_eq!(check_task(&task), Ok(()));
    task
}

/// The task that the sample that waits waits for.
fn other() -> TaskAddress {
    let job = JobName::parse("import").unwrap();
    let id = TaskId::from_bytes([2; 16]);
    TaskAddress { job, id }
}

fn waiting_for(task: TaskAddress) -> Family {
    Family {
        after: vec![Predecessor::open(task)],
        ..Family::default()
    }
}

fn release_event(from: TaskAddress, end: TaskEnd) -> Event {
    let token = Some(token(NEXT));
    let kind = EdgeKind::Follower;
    Event::Release(Release {
        kind,
        from,
        end,
        token,
    })
}

/// The ordinary event of a verb for a task, by a worker that shows the token `shown`.
fn ordinary(verb: Verb, task: &Task, shown: Token) -> Event {
    let (next, jitter) = (token(NEXT), Jitter::default());
    match verb {
        Verb::Follow => Event::Follow(EdgeKind::Follower),
        Verb::Close => Event::Close(Close {
            seen: task.write,
            failed: None,
        }),
        Verb::Release => release_event(other(), TaskEnd::Succeeded),
        Verb::Trigger => Event::Trigger(Trigger {
            seen: task.kind(),
            seen_at: task.state.trigger_at().unwrap_or_default(),
            token: next,
            jitter,
        }),
        Verb::Reclaim => Event::Reclaim(Reclaim {
            token: shown,
            next,
            jitter,
        }),
        Verb::Claim => claim_event(shown, false),
        Verb::Start => Event::Start { token: shown },
        Verb::Heartbeat => Event::Heartbeat { token: shown },
        Verb::Extend => Event::Extend {
            token: shown,
            by: Duration::from_secs(60),
        },
        Verb::Checkpoint => Event::Checkpoint {
            token: shown,
            payload: Bytes::from_static(b"half"),
        },
        Verb::Stage => Event::Stage { token: shown },
        Verb::Adopt => adopt_event(shown),
        Verb::Finish => finish_event(shown, None, Outcome::Success { result: None }),
        Verb::Abandon => Event::Abandon { token: shown, next },
        Verb::Trash => Event::Trash {
            token: shown,
            reason: "no use".into(),
        },
        Verb::Cancel => cancel_event(RunningCancel::Refuse),
        Verb::Modify => modify_event(None),
        Verb::Replace => Event::Replace(Box::new(Replacement {
            change: Modification {
                run_at: Some(match task.kind() {
                    New => task.changed_at.after(Duration::from_secs(3_600)),
                    _ => task.created_at,
                }),
                ..Modification::default()
            },
            options: None,
            token: Some(token(NEXT)),
        })),
        Verb::Drop => Event::Drop {
            reason: "gate".into(),
        },
        Verb::Redrive => Event::Redrive,
        Verb::Revive => Event::Revive(Revive {
            kind: EdgeKind::Follower,
            from: other(),
        }),
        Verb::Reopen => Event::Reopen,
        Verb::Settle => settle_event(task, None),
    }
}

pub(super) fn claim_event(token: Token, start: bool) -> Event {
    let worker = WorkerId::parse("w@2").unwrap();
    Event::Claim(Claim {
        token,
        worker,
        start,
    })
}

fn finish_event(token: Token, started_at: Option<Timestamp>, outcome: Outcome) -> Event {
    Event::Finish {
        token,
        started_at,
        outcome,
        jitter: Jitter::default(),
    }
}

fn cancel_event(running: RunningCancel) -> Event {
    Event::Cancel {
        running,
        reason: Some("stop".into()),
    }
}

fn modify_event(run_at: Option<Timestamp>) -> Event {
    let change = Modification {
        run_at,
        priority: Some(Priority::new(50).unwrap()),
        ..Modification::default()
    };
    Event::Modify {
        change,
        token: token(NEXT),
    }
}

fn retriable() -> Outcome {
    Outcome::Retriable {
        class: RetryClass::Standard,
        delay: None,
        error: "no luck".into(),
    }
}

fn fatal() -> Outcome {
    Outcome::Fatal {
        error: "bad input".into(),
    }
}

/// The time of the ordinary event: after the trigger time for a trigger, and before leases expire for all others.
fn time_of(verb: Verb) -> Timestamp {
    at(TRIGGER - i64::from(verb != Verb::Trigger))
}

/// Applies an event and checks what holds for every call: a second call has the same result, the arguments are
/// unchanged, and the new task is valid.
pub(super) fn apply_checked(task: &Task, event: &Event, now: Timestamp) -> Result<Task, Rejected> {
    let before = task.clone();
    let decided = apply(task, &Policy::default(), event, write(2), now);
    let again = apply(task, &Policy::default(), event, write(2), now);
    assert_eq!(decided, again);
    assert_eq!(*task, before);
    let transition = decided?;
    let mut after = task.clone();
    after.advance(transition);
    assert_eq!(after.write, write(2));
    assert_eq!(check_transition(task, &after), Ok(()), "{event:?}");
    Ok(after)
}

fn check_cell(task: &Task, verb: Verb, event: &Event, expected: Cell) {
    assert_eq!(event.verb(), verb);
    let decided = match apply_checked(task, event, time_of(verb)) {
        Ok(after) => Cell::To(after.kind()),
        Err(rejected) => {
            assert_eq!((rejected.verb, rejected.state), (verb, task.kind()));
            Cell::No(rejected.reason)
        }
    };
    assert_eq!(
        decided,
        expected,
        "{verb} of a task that is {}",
        task.kind()
    );
}

#[test]
fn a_resend_of_a_message_that_a_new_priority_has_replaced_is_refused() {
    // The consumer has read the task; then a user changes its priority, at a frontend whose clock is behind.
    let enqueued = sample(StateKind::Enqueued);
    let (old, seen_at) = (
        enqueued.state.token().unwrap(),
        enqueued.state.trigger_at().unwrap(),
    );
    let modify = Event::Modify {
        change: Modification::default(),
        token: Token::from_random(77),
    };
    let mut modified = enqueued.clone();
    let write = WriteId::from_random(78);
    let behind = Timestamp::EPOCH;
    modified.advance(apply(&enqueued, &Policy::default(), &modify, write, behind).unwrap());
    assert!(modified.state.trigger_at().unwrap() > seen_at);
    let resend = Event::Trigger(Trigger {
        seen: StateKind::Enqueued,
        seen_at,
        token: old,
        jitter: Jitter::default(),
    });
    let late = seen_at.after(Duration::from_secs(3_600));
    let refused = apply(&modified, &Policy::default(), &resend, write, late);
    assert_eq!(refused.unwrap_err().reason, Moved);
}

#[test]
fn f_069_each_verb_in_each_state_does_what_the_table_says() {
    let verbs: BTreeSet<_> = TABLE.iter().map(|(verb, _)| *verb).collect();
    assert_eq!(verbs.len(), 23);
    for (verb, row) in TABLE {
        for (kind, expected) in StateKind::ALL.into_iter().zip(row) {
            let task = sample(kind);
            check_cell(&task, verb, &ordinary(verb, &task, token(RIGHT)), expected);
        }
    }
}

#[test]
fn f_069_a_stale_token_is_refused_in_every_state_by_every_verb_that_carries_one() {
    for (verb, row) in STALE {
        for (kind, expected) in StateKind::ALL.into_iter().zip(row) {
            let task = sample(kind);
            assert!(matches!(expected, Cell::No(_)));
            check_cell(&task, verb, &ordinary(verb, &task, token(WRONG)), expected);
        }
    }
}

/// Events other than the ordinary ones, for the moves that only these events reach.
fn variants() -> Vec<(Task, Event, Timestamp, Cell)> {
    let (right, now) = (token(RIGHT), at(TRIGGER - 1));
    let choose = claim_tests::choose(ClaimLifetime::OfJob);
    let started_at = Some(at(CHANGED));
    let mut later = sample(StateKind::Waiting);
    later.run_at = at(90_000);
    let release = release_event(other(), TaskEnd::Succeeded);
    let refused = release_event(other(), TaskEnd::Failed);
    let mut poison = sample(Claimed);
    poison.losses = Policy::default().losses_max;
    let mut last_try = sample(Processing);
    last_try.tries = 4;
    let cancel_requested = |kind| Task {
        cancel_requested: true,
        ..sample(kind)
    };
    let trigger = |task: &Task| ordinary(Verb::Trigger, task, right);
    let mut cancelled = sample(Cancelled);
    let mut family = waiting_for(other());
    family.after[0].end = Some(TaskEnd::Failed);
    cancelled.options.get_or_insert_default().family = Some(Box::new(family));
    let revive = ordinary(Verb::Revive, &cancelled, right);
    let soon = modify_event(Some(at(50_000)));
    let request = cancel_event(RunningCancel::Request);
    let (done, stopped) = (Outcome::Success { result: None }, Outcome::Cancelled);
    let finish = |outcome| finish_event(right, started_at, outcome);
    let call = |kind, event, cell| (sample(kind), event, now, cell);
    vec![
        (later, release, now, to(New)),
        call(StateKind::Waiting, refused, to(Cancelled)),
        (cancelled, revive, now, to(StateKind::Waiting)),
        call(New, soon.clone(), to(New)),
        call(Enqueued, soon.clone(), to(New)),
        call(Retriable, soon, to(New)),
        call(Enqueued, claim_event(right, true), to(Processing)),
        (sample(New), choose.clone(), at(TRIGGER), to(Claimed)),
        (sample(Retriable), choose, at(TRIGGER), to(Claimed)),
        call(Claimed, request.clone(), to(Claimed)),
        call(Processing, request, to(Processing)),
        call(Claimed, finish(done), to(Succeeded)),
        call(Claimed, finish(fatal()), to(Failed)),
        call(Claimed, finish(retriable()), to(Retriable)),
        call(Processing, finish(fatal()), to(Failed)),
        call(Processing, finish(retriable()), to(Retriable)),
        call(Processing, finish(stopped), no(CancelNotRequested)),
        (last_try.clone(), finish(retriable()), now, to(Failed)),
        (
            last_try.clone(),
            trigger(&last_try),
            at(TRIGGER),
            to(Failed),
        ),
        (poison.clone(), trigger(&poison), at(TRIGGER), to(Trashed)),
    ]
    .into_iter()
    .chain([Claimed, Processing].into_iter().flat_map(|kind| {
        let task = cancel_requested(kind);
        let abandon = ordinary(Verb::Abandon, &task, right);
        [
            (task.clone(), finish(Outcome::Cancelled), now, to(Cancelled)),
            (task.clone(), finish(retriable()), now, to(Cancelled)),
            (task.clone(), abandon, now, to(Cancelled)),
            (task.clone(), trigger(&task), at(TRIGGER), to(Cancelled)),
        ]
    }))
    .collect()
}

#[test]
fn f_069_every_move_of_the_design_is_reached_and_no_other() {
    let mut reached = BTreeSet::new();
    for (verb, row) in TABLE {
        for (kind, expected) in StateKind::ALL.into_iter().zip(row) {
            if let Cell::To(next) = expected {
                assert!(kind.may_become(next), "{verb}: {kind} became {next}");
                reached.insert((kind, next));
            }
        }
    }
    for (task, event, now, expected) in variants() {
        let decided = apply_checked(&task, &event, now);
        let decided = decided.map_or_else(|r| no(r.reason), |t| to(t.kind()));
        assert_eq!(decided, expected, "{} of {}", event.verb(), task.kind());
        if let Cell::To(next) = decided {
            reached.insert((task.kind(), next));
        }
    }
    let all = StateKind::ALL;
    let legal = all.into_iter().flat_map(|a| all.map(|b| (a, b)));
    let legal: BTreeSet<_> = legal.filter(|(a, b)| a.may_become(*b)).collect();
    assert_eq!(reached, legal);
}

#[test]
fn f_069_a_trigger_of_a_task_that_moved_or_is_not_due_changes_nothing() {
    for kind in [
        StateKind::Waiting,
        New,
        Enqueued,
        Claimed,
        Processing,
        Retriable,
    ] {
        let task = sample(kind);
        let seen = |seen, seen_at| {
            Event::Trigger(Trigger {
                seen,
                seen_at: at(seen_at),
                token: token(NEXT),
                jitter: Jitter::default(),
            })
        };
        let reason = |event, now| apply_checked(&task, &event, at(now)).unwrap_err().reason;
        assert_eq!(reason(seen(kind, TRIGGER), TRIGGER - 1), NotDue);
        assert_eq!(reason(seen(kind, TRIGGER - 1), TRIGGER), Moved);
        assert_eq!(reason(seen(Succeeded, TRIGGER), TRIGGER), Moved);
    }
}

#[test]
fn f_069_the_present_token_renews_a_lapsed_lease_until_the_task_is_reclaimed() {
    let task = sample(Processing);
    let late = at(TRIGGER + 6_000);
    for verb in [Verb::Heartbeat, Verb::Extend, Verb::Checkpoint] {
        let event = ordinary(verb, &task, token(RIGHT));
        let renewed = apply_checked(&task, &event, late).unwrap();
        assert_eq!(renewed.kind(), Processing, "{verb}");
        let ends_at = renewed.lease().unwrap().ends_at();
        assert!(ends_at > late, "{verb}: {ends_at:?}");
        let reclaim = ordinary(Verb::Trigger, &task, token(RIGHT));
        let reclaimed = apply_checked(&task, &reclaim, late).unwrap();
        let refused = apply_checked(&reclaimed, &event, late).unwrap_err();
        assert_eq!(refused.reason, Lost, "{verb}");
    }
    let event = ordinary(Verb::Finish, &task, token(RIGHT));
    let finished = apply_checked(&task, &event, at(90_000)).unwrap();
    assert_eq!(finished.kind(), Succeeded);
}

#[test]
fn f_069_a_26_a_strict_limit_is_not_renewed_but_the_outcome_still_counts() {
    let mut past_deadline = sample(Processing);
    let State::Processing { lease, .. } = &mut past_deadline.state else {
        unreachable!("the sample is processing");
    };
    let deadline = at(TRIGGER).after(Policy::RUN_GRACE);
    (lease.deadline_at, lease.expires_at) = (Some(deadline), at(TRIGGER + 60_000));
    let mut without_increment = sample(Processing);
    let overrides = Overrides {
        heartbeat_increment: Some(std::time::Duration::ZERO),
        ..Overrides::default()
    };
    without_increment.options = Some(Box::new(crate::TaskOptions {
        overrides: Some(overrides),
        ..crate::TaskOptions::default()
    }));
    for task in [past_deadline, without_increment] {
        for verb in [Verb::Heartbeat, Verb::Extend, Verb::Checkpoint] {
            let event = ordinary(verb, &task, token(RIGHT));
            let refused = apply_checked(&task, &event, at(TRIGGER)).unwrap_err();
            assert_eq!(refused.reason, Expired, "{verb}");
        }
        let event = ordinary(Verb::Finish, &task, token(RIGHT));
        let finished = apply_checked(&task, &event, at(90_000)).unwrap();
        assert_eq!(finished.kind(), Succeeded);
    }
}

#[test]
fn a_26_a_lease_that_lasts_until_the_run_timeout_ends_lasts_for_the_grace_too() {
    let policy = Policy {
        run_timeout: Some(Duration::from_millis(5_000)),
        ..Policy::default()
    };
    let claimed = sample(Claimed);
    let after = |task: &Task, event: &Event, now| {
        let mut task = task.clone();
        task.advance(apply(&task, &policy, event, write(2), at(now)).unwrap());
        task
    };
    let ends_at = |task: &Task| task.lease().unwrap().ends_at();
    let start = Event::Start {
        token: token(RIGHT),
    };
    let running = after(&claimed, &start, 20_000);
    assert_eq!(ends_at(&running), at(25_000).after(Policy::RUN_GRACE));
    let extend = |by| Event::Extend {
        token: token(RIGHT),
        by: Duration::from_millis(by),
    };
    // A shorter lease is not longer because of the grace.
    let shorter = after(&running, &extend(1_999), 23_000);
    assert_eq!(ends_at(&shorter), at(24_999));
    let longer = after(&shorter, &extend(2_000), 23_000);
    assert_eq!(ends_at(&longer), at(25_000).after(Policy::RUN_GRACE));
}

#[test]
fn an_abandoned_run_uses_no_try_and_a_lost_run_does() {
    let task = sample(Processing);
    let tries = |verb| {
        let event = ordinary(verb, &task, token(RIGHT));
        apply_checked(&task, &event, time_of(verb)).unwrap().tries
    };
    assert_eq!(tries(Verb::Abandon), 0);
    assert_eq!(tries(Verb::Trigger), 1);
    assert_eq!(tries(Verb::Reclaim), 1);
}

/// The policy of a job with a sink.
fn with_sink() -> Policy {
    Policy {
        sink: Some(crate::Sink::parse("file:done").unwrap()),
        ..Policy::default()
    }
}

/// Applies an event under the policy of a job with a sink.
fn apply_with_sink(task: &Task, event: &Event, number: u64, now: i64) -> Result<Task, Rejected> {
    let mut after = task.clone();
    after.advance(apply(task, &with_sink(), event, write(number), at(now))?);
    assert_eq!(check_transition(task, &after), Ok(()), "{event:?}");
    Ok(after)
}

#[test]
fn f_111_a_task_of_a_job_with_a_sink_owes_its_delivery_from_every_end_on() {
    let mut ends = BTreeSet::new();
    let ordinary_events = [Verb::Finish, Verb::Trash, Verb::Cancel, Verb::Drop];
    let events = ordinary_events.into_iter().flat_map(|verb| {
        let tasks = StateKind::ALL.map(sample).into_iter();
        tasks.map(move |task| (ordinary(verb, &task, token(RIGHT)), task))
    });
    let variants = variants().into_iter();
    for (event, task) in events.chain(variants.map(|(task, event, ..)| (event, task))) {
        let Ok(after) = apply_with_sink(&task, &event, 2, TRIGGER) else {
            continue;
        };
        let Some(finished_at) = after.finished_at else {
            assert_eq!(after.owed, None, "{event:?}");
            continue;
        };
        ends.insert(after.kind());
        let owed = after.owed.clone().expect("an owed delivery");
        assert_eq!(owed.effects, [Effect::Deliver]);
        assert_eq!((owed.trigger_at, owed.failures), (finished_at, 0));
        assert_eq!(after.trigger_at(), Some(finished_at));
        assert_eq!(after.effects().wake_at, Some(finished_at));
    }
    let all_ends = [Succeeded, Failed, Cancelled, Trashed, Dropped];
    assert_eq!(ends, BTreeSet::from(all_ends));
    // Without a sink nothing is owed.
    let event = ordinary(Verb::Finish, &sample(Processing), token(RIGHT));
    let after = apply_checked(&sample(Processing), &event, at(TRIGGER)).unwrap();
    assert_eq!((after.owed.clone(), after.trigger_at()), (None, None));
}

#[test]
fn f_111_a_failed_delivery_is_owed_later_and_later_and_a_done_one_no_more() {
    let event = finish_event(token(RIGHT), None, Outcome::Success { result: None });
    let done = apply_with_sink(&sample(Processing), &event, 2, CHANGED).unwrap();
    let (mut task, mut now) = (done.clone(), CHANGED);
    for (number, wait_s) in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
        .into_iter()
        .enumerate()
    {
        let error = "é".repeat(1_000);
        let event = settle_event(&task, Some(&error));
        let failures = u32::try_from(number).unwrap() + 1;
        task = apply_with_sink(&task, &event, 3 + number as u64, now).unwrap();
        let owed = task.owed.as_ref().unwrap();
        assert_eq!(owed.failures, failures);
        assert_eq!(owed.trigger_at, at(now + wait_s * 1_000));
        assert_eq!(owed.error.as_ref().unwrap().len(), Owed::ERROR_BYTES_MAX);
        assert_eq!(task.finished_at, done.finished_at);
        now = owed.trigger_at.millis();
    }
    let event = settle_event(&task, None);
    let settled = apply_with_sink(&task, &event, 90, now).unwrap();
    assert_eq!(settled.owed, None);
    let again = apply_with_sink(&settled, &settle_event(&settled, None), 91, now);
    assert_eq!(again.unwrap_err().reason, Moved);
    // What was done for an earlier version of the task settles nothing.
    let stale = apply_with_sink(&task, &settle_event(&done, None), 92, now);
    assert_eq!(stale.unwrap_err().reason, Moved);
}

#[test]
fn f_111_a_redrive_clears_what_is_owed_and_the_next_end_owes_again() {
    let event = finish_event(token(RIGHT), None, fatal());
    let failed = apply_with_sink(&sample(Processing), &event, 2, CHANGED).unwrap();
    let redriven = apply_with_sink(&failed, &Event::Redrive, 3, CHANGED).unwrap();
    assert_eq!(redriven.owed, None);
    let late = apply_with_sink(&redriven, &settle_event(&failed, None), 4, CHANGED);
    assert_eq!(late.unwrap_err().reason, NotFinished);
    let cancel = cancel_event(RunningCancel::Refuse);
    let cancelled = apply_with_sink(&redriven, &cancel, 5, CHANGED).unwrap();
    let stale = apply_with_sink(&cancelled, &settle_event(&failed, None), 6, CHANGED);
    assert_eq!(stale.unwrap_err().reason, Moved);
    assert!(cancelled.owed.is_some());
}
