//! What must hold for every task after every move: it reads back as it was written, its hint is never late, and its
//! item stays small.

use std::time::Duration;

use bytes::Bytes;
use dueline_domain::{
    Claim, Event, Extras, Jitter, JobName, Modification, NewTask, Outcome, Overrides, OwnerLost,
    Policy, Priority, RetryClass, RetryPolicy, RunningCancel, StateKind, Task, TaskId, Timestamp,
    Token, Trigger, WorkerId, WriteId,
};
use proptest::prelude::*;

use crate::{
    attr, hint,
    layout::{self, Marks},
    row::{self, Parts, Row},
};

fn at(ms: i64) -> Timestamp {
    Timestamp::clamped(1_800_000_000_000 + ms)
}

fn policy() -> impl Strategy<Value = Policy> {
    let secs =
        |range| proptest::num::u64::ANY.prop_map(move |n: u64| Duration::from_secs(1 + n % range));
    (
        secs(120),
        secs(60),
        secs(60),
        secs(30),
        proptest::option::of(secs(100)),
        0_u32..4,
    )
        .prop_map(
            |(enqueue, claim, heartbeat, increment, run_timeout, losses_max)| Policy {
                retry: RetryPolicy {
                    retries_max: None,
                    ..RetryPolicy::default()
                },
                enqueue_timeout: enqueue,
                claim_timeout: claim,
                heartbeat_timeout: heartbeat,
                heartbeat_increment: increment,
                run_timeout,
                losses_max,
                retention: Some(Duration::from_secs(60)),
            },
        )
}

/// A move, told by numbers, because what it needs depends on the task.
#[derive(Clone, Debug)]
struct Move {
    what: u8,
    pass_ms: i64,
    bytes: usize,
    seconds: u64,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let bytes = prop_oneof![3 => 0_usize..200, 1 => 200_usize..6_000];
    let pass_ms = prop_oneof![6 => 0_i64..3_000, 2 => 0_i64..200_000, 1 => -5_000_i64..0];
    let one =
        (0_u8..24, pass_ms, bytes, 0_u64..400).prop_map(|(what, pass_ms, bytes, seconds)| Move {
            what,
            pass_ms,
            bytes,
            seconds,
        });
    proptest::collection::vec(one, 1..60)
}

fn event(step: &Move, task: &Task, number: u64) -> Event {
    let token = task.state.token().unwrap_or(Token::from_random(1));
    let next = Token::from_random(number + 1_000);
    let jitter = Jitter::from_random(number << 40);
    let body = Bytes::from(vec![step.what; step.bytes]);
    let words = || "x".repeat(step.bytes).into();
    let trigger = || {
        Event::Trigger(Trigger {
            seen: task.kind(),
            seen_at: task.state.trigger_at().unwrap_or(Timestamp::EPOCH),
            token: next,
            jitter,
        })
    };
    let finish = |outcome| Event::Finish {
        token,
        started_at: Some(task.changed_at),
        outcome,
        jitter,
    };
    // Half of the time what helps the task on its way, otherwise anything.
    if step.bytes.is_multiple_of(2) {
        match task.kind() {
            StateKind::New | StateKind::Retriable => return trigger(),
            StateKind::Enqueued => {
                return Event::Claim(Claim {
                    token,
                    worker: WorkerId::new("executor", number).expect("a worker"),
                    start: step.seconds.is_multiple_of(2),
                });
            }
            StateKind::Claimed => return Event::Start { token },
            StateKind::Processing => {}
            _ => return Event::Redrive,
        }
    }
    match step.what {
        0..=3 => trigger(),
        4..=7 => Event::Claim(Claim {
            token,
            worker: WorkerId::new("executor", number).expect("a worker"),
            start: step.seconds.is_multiple_of(2),
        }),
        8 => Event::Start { token },
        9 | 10 => Event::Heartbeat { token },
        11 => Event::Extend {
            token,
            by: Duration::from_secs(step.seconds),
        },
        12 => Event::Checkpoint {
            token,
            payload: body,
        },
        13 if step.seconds < 50 => finish(Outcome::Success { result: Some(body) }),
        13..=16 => finish(Outcome::Retriable {
            class: RetryClass::ALL[step.bytes % RetryClass::ALL.len()],
            delay: step
                .seconds
                .is_multiple_of(3)
                .then(|| Duration::from_secs(step.seconds)),
            error: words(),
        }),
        17 => finish(Outcome::Fatal { error: words() }),
        18 => Event::Abandon { token, next },
        19 => Event::OwnerLost(OwnerLost {
            token,
            next,
            jitter,
        }),
        20 if step.seconds < 50 => Event::Cancel {
            running: RunningCancel::Request,
            reason: step.seconds.is_multiple_of(2).then(words),
        },
        21 => Event::Modify {
            change: Modification {
                run_at: step
                    .seconds
                    .is_multiple_of(2)
                    .then(|| task.changed_at.after(Duration::from_secs(step.seconds))),
                priority: Priority::new(step.seconds.cast_signed() - 200).ok(),
                weight: None,
                payload: step.seconds.is_multiple_of(3).then_some(body),
            },
            token: next,
        },
        22 => Event::Trash {
            token,
            reason: words(),
        },
        _ => Event::Redrive,
    }
}

/// Everything that is stored for one task.
struct Stored {
    row: Row,
    parts: Parts,
}

impl Stored {
    fn write(before: Option<&Self>, task: Task, policy: &Policy) -> Self {
        let seen = before.map(|stored| &stored.row);
        let due = hint::hint(seen.and_then(Row::hint), &task, policy);
        let marks = Marks {
            due: due.map(|hint| ("mail#abcdef#0".to_owned(), hint)),
            expires_at: task.finished_at,
        };
        let mut parts = before
            .map(|stored| stored.parts.clone())
            .unwrap_or_default();
        let laid = layout::lay_out(task, seen, marks, "t#mail#abcdef#00".len());
        for part in laid.put {
            assert!(
                parts.insert(part.name, part.bytes).is_none(),
                "no part is overwritten"
            );
        }
        for part in &laid.drop {
            assert!(
                parts.remove(part).is_some(),
                "only what is there is dropped"
            );
        }
        let mut referred = row::refs(&laid.row.item);
        referred.sort_unstable();
        let mut kept: Vec<_> = parts.keys().copied().collect();
        kept.sort_unstable();
        assert_eq!(
            kept, referred,
            "nothing is left behind and nothing is missing"
        );
        Self {
            row: laid.row,
            parts,
        }
    }

    fn check(&self) {
        let task = &self.row.task;
        let read = row::read(
            &task.job,
            task.id,
            self.row.item.clone(),
            &self.parts,
            false,
        );
        let read = read.expect("it can be read");
        assert_eq!(&read.task, task);
        assert_eq!(read.item, self.row.item);
        let at_hand = row::parts_of(&self.row);
        assert_eq!(at_hand, self.parts, "what is at hand is what is stored");
        let hint = self.row.hint();
        assert_eq!(
            hint.is_some(),
            !task.kind().is_final(),
            "in the index exactly while unfinished"
        );
        assert_eq!(self.row.due_key().is_some(), hint.is_some());
        if let (Some(hint), Some(trigger_at)) = (hint, task.state.trigger_at()) {
            assert!(hint <= trigger_at, "{hint} is later than {trigger_at}");
        }
        let (kind, trigger_at) = row::moment(&self.row.item).expect("a moment");
        assert_eq!((kind, trigger_at), (task.kind(), task.state.trigger_at()));
        // A kibibyte, and the names of 32 past runs that are apart.
        let bytes = attr::size(&self.row.item);
        assert!(bytes <= 1_024 + 400, "{bytes} bytes in {}", task.kind());
    }
}

fn extras(bytes: usize) -> Option<Box<Extras>> {
    (bytes > 50).then(|| {
        Box::new(Extras {
            name: Some("a name".into()),
            details: (bytes > 400).then(|| "d".repeat(bytes).into()),
            key: Some("a key".into()),
            overrides: bytes.is_multiple_of(2).then(|| Overrides {
                heartbeat_timeout: Some(Duration::from_secs(3)),
                ..Overrides::default()
            }),
            ..Extras::default()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn after_every_move_the_hint_is_not_late_and_the_task_reads_back(
        policies in (policy(), policy()),
        bytes in prop_oneof![0_usize..700, 700_usize..5_000],
        later in 0_i64..100_000,
        moves in moves(),
    ) {
        let job = JobName::parse("mail").expect("a name");
        let run_at = (later > 50_000).then(|| at(later));
        let extras = extras(bytes % 1_000);
        let new = NewTask {
            run_at,
            extras,
            ..NewTask::now(TaskId::from_bytes([9; 16]), job, vec![1; bytes].into())
        };
        let (mut now_ms, mut moved) = (0, 0);
        let mut policy = &policies.0;
        let task = new.into_task(policy, at(0), Token::from_random(7), WriteId::from_random(9), true);
        let mut stored = Stored::write(None, task, policy);
        stored.check();
        for (number, step) in (10_u64..).zip(&moves) {
            now_ms += step.pass_ms;
            // The policy of a job may change between any two moves.
            if number == 20 {
                policy = &policies.1;
            }
            let task = &stored.row.task;
            let write = WriteId::from_random(number);
            let event = event(step, task, number);
            if matches!(event, Event::Trigger(_))
                && let Some(trigger_at) = task.state.trigger_at()
            {
                now_ms = now_ms.max(trigger_at.millis() - at(0).millis());
            }
            let decided = dueline_domain::apply(task, policy, &event, write, at(now_ms));
            let Ok(transition) = decided else {
                continue;
            };
            let mut after = task.clone();
            after.advance(transition);
            stored = Stored::write(Some(&stored), after, policy);
            stored.check();
            moved += 1;
        }
        // Many moves in which nothing happens would show nothing.
        prop_assert!(moves.len() < 40 || moved >= 5 || stored.row.task.kind().is_final());
    }
}

#[test]
fn a_body_is_stored_apart_exactly_when_it_would_start_another_kibibyte() {
    let lay = |bytes: usize| {
        let job = JobName::parse("mail").expect("a name");
        let new = NewTask::now(TaskId::from_bytes([9; 16]), job, vec![1; bytes].into());
        let policy = Policy::default();
        let task = new.into_task(
            &policy,
            at(0),
            Token::from_random(7),
            WriteId::from_random(9),
            true,
        );
        Stored::write(None, task, &policy)
    };
    for bytes in [0, 1, 500, 580] {
        assert!(lay(bytes).parts.is_empty(), "{bytes} bytes stay");
    }
    for bytes in [1_024, 50_000] {
        let stored = lay(bytes);
        assert_eq!(stored.parts.len(), 1, "{bytes} bytes go");
        assert!(attr::size(&stored.row.item) < 300);
    }
}

#[test]
fn what_is_new_gets_only_the_room_that_past_runs_leave() {
    let policy = Policy::default();
    let job = JobName::parse("mail").expect("a name");
    let new = NewTask::now(TaskId::from_bytes([9; 16]), job, Bytes::new());
    let (token, jitter) = (Token::from_random(7), Jitter::from_random(0));
    let task = new.into_task(&policy, at(0), token, WriteId::from_random(9), true);
    let claim = |number| {
        Event::Claim(Claim {
            token: Token::from_random(number),
            worker: WorkerId::new("executor", number).expect("a worker"),
            start: true,
        })
    };
    let failed = Event::Finish {
        token,
        started_at: None,
        outcome: Outcome::Retriable {
            class: RetryClass::ALL[0],
            delay: Some(Duration::from_secs(1)),
            error: "x".repeat(400).into(),
        },
        jitter,
    };
    let again = Event::Trigger(Trigger {
        seen: StateKind::Retriable,
        seen_at: at(3_000),
        token: Token::from_random(8),
        jitter,
    });
    let checkpoint = Event::Checkpoint {
        token: Token::from_random(8),
        payload: vec![1; 400].into(),
    };
    let mut stored = Stored::write(None, task, &policy);
    for (number, event) in (10..).zip([claim(7), failed, again, claim(8), checkpoint]) {
        let (write, now) = (
            WriteId::from_random(number),
            at(1_000 * number.cast_signed() - 9_000),
        );
        let task = &stored.row.task;
        let transition = dueline_domain::apply(task, &policy, &event, write, now);
        let mut after = task.clone();
        after.advance(transition.unwrap_or_else(|error| panic!("{event:?}: {error}")));
        stored = Stored::write(Some(&stored), after, &policy);
        stored.check();
    }
    assert_eq!(
        stored.parts.len(),
        1,
        "the error stays, the checkpoint goes"
    );
    let bytes = attr::size(&stored.row.item);
    assert!((400..1_024).contains(&bytes), "{bytes} bytes");
}

#[test]
fn an_unknown_state_is_told_and_not_guessed() {
    let stored = {
        let job = JobName::parse("mail").expect("a name");
        let new = NewTask::now(TaskId::from_bytes([9; 16]), job, Bytes::new());
        let policy = Policy::default();
        let task = new.into_task(
            &policy,
            at(0),
            Token::from_random(7),
            WriteId::from_random(9),
            true,
        );
        Stored::write(None, task, &policy)
    };
    let mut item = stored.row.item.clone();
    item.insert(row::name::STATE.into(), attr::num(77));
    let job = &stored.row.task.job;
    let read = row::read(job, stored.row.task.id, item.clone(), &Parts::new(), false);
    assert!(read.is_err_and(|bad| bad.to_string().contains("77")));
    assert!(row::moment(&item).is_err());
    assert_eq!(stored.row.task.kind(), StateKind::Enqueued);
}
