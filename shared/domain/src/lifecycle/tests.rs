//! The whole table of states and verbs, cell by cell.

use std::collections::BTreeSet;

use Reason::*;
use StateKind::*;

use super::*;
use crate::{JobName, Lease, NewTask, Overrides, TaskId, check_step, check_task};

/// What one cell of the table says.
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

/// Six unfinished states as told, and the same refusal in all five final ones.
const fn row(open: [Cell; 6], ended: Reason) -> [Cell; 11] {
    let [a, b, c, d, e, f] = open;
    let z = no(ended);
    [a, b, c, d, e, f, z, z, z, z, z]
}

/// The ordinary call of each verb: right token, live lease, trigger time just passed, handler successful, cancel
/// that does not touch running tasks. Columns are waiting, new, enqueued, claimed, processing, retriable and the
/// final states.
#[rustfmt::skip]
const TABLE: [(Verb, [Cell; 11]); 15] = [
    (Verb::Release, row([to(Enqueued), no(NotWaiting), no(NotWaiting), no(NotWaiting), no(NotWaiting), no(NotWaiting)], NotWaiting)),
    (Verb::Trigger, row([no(Reason::Waiting), to(Enqueued), to(Enqueued), to(Enqueued), to(Enqueued), to(Enqueued)], Finished)),
    (Verb::OwnerLost, row([no(Moved), no(Moved), no(Moved), to(Enqueued), to(Enqueued), no(Moved)], Finished)),
    (Verb::Claim, row([no(Reason::Waiting), no(NotDue), to(Claimed), no(AlreadyClaimed), no(AlreadyClaimed), no(NotDue)], Finished)),
    (Verb::Start, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), to(Processing), no(AlreadyStarted), no(Lost)], Finished)),
    (Verb::Heartbeat, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), no(NotStarted), to(Processing), no(Lost)], Finished)),
    (Verb::Extend, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), to(Claimed), to(Processing), no(Lost)], Finished)),
    (Verb::Checkpoint, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), no(NotStarted), to(Processing), no(Lost)], Finished)),
    (Verb::Finish, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), no(NotStarted), to(Succeeded), no(Lost)], Finished)),
    (Verb::Abandon, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), to(Enqueued), to(Enqueued), no(Lost)], Finished)),
    (Verb::Trash, row([no(NotClaimed), no(NotClaimed), no(NotClaimed), to(Trashed), to(Trashed), no(Lost)], Finished)),
    (Verb::Cancel, row([to(Cancelled), to(Cancelled), to(Cancelled), no(Running), no(Running), to(Cancelled)], Finished)),
    (Verb::Modify, row([to(StateKind::Waiting), to(New), to(Enqueued), no(Running), no(Running), to(Retriable)], Finished)),
    (Verb::Drop, row([no(Reason::Waiting), to(Dropped), to(Dropped), no(Running), no(Running), to(Dropped)], Finished)),
    (Verb::Redrive, [
        no(NotFinished), no(NotFinished), no(NotFinished), no(NotFinished), no(NotFinished), no(NotFinished),
        no(Finished), to(New), no(Finished), to(New), no(Finished),
    ]),
];

/// The verbs that carry a token, with a stale one: never accepted, whatever the state.
#[rustfmt::skip]
const STALE: [(Verb, [Cell; 11]); 9] = [
    (Verb::OwnerLost, row([no(Moved); 6], Finished)),
    (Verb::Claim, row([no(Reason::Waiting), no(NotDue), no(Lost), no(AlreadyClaimed), no(AlreadyClaimed), no(NotDue)], Finished)),
    (Verb::Start, STALE_REPORT),
    (Verb::Heartbeat, STALE_REPORT),
    (Verb::Extend, STALE_REPORT),
    (Verb::Checkpoint, STALE_REPORT),
    (Verb::Finish, STALE_REPORT),
    (Verb::Abandon, STALE_REPORT),
    (Verb::Trash, STALE_REPORT),
];

#[rustfmt::skip]
const STALE_REPORT: [Cell; 11] =
    row([no(NotClaimed), no(NotClaimed), no(Lost), no(Lost), no(Lost), no(Lost)], Finished);

fn at(millis: i64) -> Timestamp {
    Timestamp::clamped(millis)
}

fn token(number: u64) -> Token {
    Token::from_random(number)
}

fn write(number: u64) -> WriteId {
    WriteId::from_random(number)
}

const RIGHT: u64 = 7;
const WRONG: u64 = 8;
const NEXT: u64 = 9;
/// Every sample task last changed here.
const CHANGED: i64 = 10_000;
/// An unowned task's trigger time; an owner's lease ends here.
const TRIGGER: i64 = 20_000;

/// A task as it could have come to be in each state.
fn sample(kind: StateKind) -> Task {
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
        StateKind::Waiting => State::Waiting,
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

/// The ordinary event of a verb for a task.
fn ordinary(verb: Verb, task: &Task, shown: Token) -> Event {
    let (next, jitter) = (token(NEXT), Jitter::default());
    match verb {
        Verb::Release => Event::Release { token: next },
        Verb::Trigger => Event::Trigger(Trigger {
            seen: task.kind(),
            seen_at: task.state.trigger_at().unwrap_or_default(),
            token: next,
            jitter,
        }),
        Verb::OwnerLost => Event::OwnerLost(OwnerLost {
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
        Verb::Finish => finish_event(shown, None, Outcome::Success { result: None }),
        Verb::Abandon => Event::Abandon { token: shown, next },
        Verb::Trash => Event::Trash {
            token: shown,
            reason: "no use".into(),
        },
        Verb::Cancel => cancel_event(RunningCancel::Refuse),
        Verb::Modify => modify_event(None),
        Verb::Drop => Event::Drop {
            reason: "gate".into(),
        },
        Verb::Redrive => Event::Redrive,
    }
}

fn claim_event(token: Token, start: bool) -> Event {
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

/// A trigger comes when its time has passed, everything else while leases hold.
fn time_of(verb: Verb) -> Timestamp {
    at(TRIGGER - i64::from(verb != Verb::Trigger))
}

/// Applies, and checks what holds for every call: the same twice, and nothing moved by a refusal.
fn step(task: &Task, event: &Event, now: Timestamp) -> Result<Task, Rejected> {
    let before = task.clone();
    let decided = apply(task, &Policy::default(), event, write(2), now);
    let again = apply(task, &Policy::default(), event, write(2), now);
    assert_eq!(decided, again);
    assert_eq!(*task, before);
    let transition = decided?;
    let mut after = task.clone();
    after.advance(transition);
    assert_eq!(after.write, write(2));
    assert_eq!(check_step(task, &after), Ok(()), "{event:?}");
    Ok(after)
}

fn check_cell(task: &Task, verb: Verb, event: &Event, expected: Cell) {
    assert_eq!(event.verb(), verb);
    let seen = match step(task, event, time_of(verb)) {
        Ok(after) => Cell::To(after.kind()),
        Err(rejected) => {
            assert_eq!((rejected.verb, rejected.state), (verb, task.kind()));
            Cell::No(rejected.reason)
        }
    };
    assert_eq!(seen, expected, "{verb} of a task that is {}", task.kind());
}

#[test]
fn f_069_each_verb_in_each_state_does_what_the_table_says() {
    let verbs: BTreeSet<_> = TABLE.iter().map(|(verb, _)| *verb).collect();
    assert_eq!(verbs.len(), 15);
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

/// Calls other than the ordinary one, for the moves that only they reach.
fn variants() -> Vec<(Task, Event, Timestamp, Cell)> {
    let (right, now) = (token(RIGHT), at(TRIGGER - 1));
    let begun = Some(at(CHANGED));
    let mut later = sample(StateKind::Waiting);
    later.run_at = at(90_000);
    let release = Event::Release { token: token(NEXT) };
    let mut poison = sample(Claimed);
    poison.losses = Policy::default().losses_max;
    let mut last = sample(Processing);
    last.tries = 4;
    let asked = |kind| Task {
        cancel_requested: true,
        ..sample(kind)
    };
    let trigger = |task: &Task| ordinary(Verb::Trigger, task, right);
    let soon = modify_event(Some(at(50_000)));
    let request = cancel_event(RunningCancel::Request);
    let (done, stopped) = (Outcome::Success { result: None }, Outcome::Cancelled);
    let finish = |outcome| finish_event(right, begun, outcome);
    let call = |kind, event, cell| (sample(kind), event, now, cell);
    vec![
        (later, release, now, to(New)),
        call(New, soon.clone(), to(New)),
        call(Enqueued, soon.clone(), to(New)),
        call(Retriable, soon, to(New)),
        call(Enqueued, claim_event(right, true), to(Processing)),
        call(Claimed, request.clone(), to(Claimed)),
        call(Processing, request, to(Processing)),
        call(Claimed, finish(done), to(Succeeded)),
        call(Claimed, finish(fatal()), to(Failed)),
        call(Claimed, finish(retriable()), to(Retriable)),
        call(Processing, finish(fatal()), to(Failed)),
        call(Processing, finish(retriable()), to(Retriable)),
        call(Processing, finish(stopped), no(CancelNotRequested)),
        (last.clone(), finish(retriable()), now, to(Failed)),
        (last.clone(), trigger(&last), at(TRIGGER), to(Failed)),
        (poison.clone(), trigger(&poison), at(TRIGGER), to(Trashed)),
    ]
    .into_iter()
    .chain([Claimed, Processing].into_iter().flat_map(|kind| {
        let task = asked(kind);
        let give_back = ordinary(Verb::Abandon, &task, right);
        [
            (task.clone(), finish(Outcome::Cancelled), now, to(Cancelled)),
            (task.clone(), finish(retriable()), now, to(Cancelled)),
            (task.clone(), give_back, now, to(Cancelled)),
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
        let seen = step(&task, &event, now).map_or_else(|r| no(r.reason), |t| to(t.kind()));
        assert_eq!(seen, expected, "{} of {}", event.verb(), task.kind());
        if let Cell::To(next) = seen {
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
    for kind in [New, Enqueued, Claimed, Processing, Retriable] {
        let task = sample(kind);
        let seen = |seen, seen_at| {
            Event::Trigger(Trigger {
                seen,
                seen_at: at(seen_at),
                token: token(NEXT),
                jitter: Jitter::default(),
            })
        };
        let reason = |event, now| step(&task, &event, at(now)).unwrap_err().reason;
        assert_eq!(reason(seen(kind, TRIGGER), TRIGGER - 1), NotDue);
        assert_eq!(reason(seen(kind, TRIGGER - 1), TRIGGER), Moved);
        assert_eq!(reason(seen(StateKind::Waiting, TRIGGER), TRIGGER), Moved);
    }
}

#[test]
fn f_069_a_lapsed_lease_is_not_renewed_but_its_outcome_still_counts() {
    let task = sample(Processing);
    for verb in [Verb::Heartbeat, Verb::Extend, Verb::Checkpoint] {
        let event = ordinary(verb, &task, token(RIGHT));
        let refused = step(&task, &event, at(TRIGGER)).unwrap_err();
        assert_eq!(refused.reason, Expired);
    }
    let event = ordinary(Verb::Finish, &task, token(RIGHT));
    assert_eq!(step(&task, &event, at(90_000)).unwrap().kind(), Succeeded);
}

#[test]
fn a_run_given_back_returns_its_try_and_a_lost_one_does_not() {
    let task = sample(Processing);
    let tries = |verb| {
        let event = ordinary(verb, &task, token(RIGHT));
        step(&task, &event, time_of(verb)).unwrap().tries
    };
    assert_eq!(tries(Verb::Abandon), 0);
    assert_eq!(tries(Verb::Trigger), 1);
    assert_eq!(tries(Verb::OwnerLost), 1);
}

#[test]
fn the_only_try_of_a_task_does_not_begin_with_its_claim() {
    let mut only = sample(Enqueued);
    let overrides = Overrides {
        retries_max: Some(0),
        ..Overrides::default()
    };
    only.extras = Some(Box::new(crate::Extras {
        overrides: Some(overrides),
        ..crate::Extras::default()
    }));
    let claim = claim_event(token(RIGHT), true);
    let policy = Policy::default();
    let claimed = apply(&only, &policy, &claim, write(9), at(CHANGED)).unwrap();
    // The claim's answer may be lost, and the task has not run: no try may be used.
    assert_eq!((claimed.state.kind(), claimed.tries), (Claimed, 0));
    let usual = apply(&sample(Enqueued), &policy, &claim, write(9), at(CHANGED)).unwrap();
    assert_eq!((usual.state.kind(), usual.tries), (Processing, 1));
}
