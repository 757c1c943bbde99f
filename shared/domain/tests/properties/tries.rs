//! Random tasks, policies and things to try.

use std::time::Duration;

use bytes::Bytes;
use dueline_domain::{
    Backoff, Claim, Event, Extras, Jitter, JobName, Modification, NewTask, Outcome, Overrides,
    OwnerLost, Policy, Priority, RetryClass, RetryPolicy, RunningCancel, State, Task, TaskId,
    Timestamp, Token, Trigger, Verb, WorkerId, WriteId,
};
use proptest::prelude::*;

/// One thing that is tried. Tokens and views are relative to the task as it then is.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub(crate) verb: Verb,
    /// Whether the token shown, or the view of the consumer, is the present one.
    pub(crate) stale: bool,
    /// How far the clock jumps before it, in either direction.
    pub(crate) jump_ms: i64,
    /// How the run ended, for a finish.
    pub(crate) outcome: u8,
    pub(crate) class: RetryClass,
    pub(crate) delay_ms: Option<u32>,
    /// The other choice of verbs that have one: start with the claim, ask to stop, new time, start in the outcome.
    pub(crate) flag: bool,
    pub(crate) random: u64,
}

const VERBS: [Verb; 15] = [
    Verb::Release,
    Verb::Trigger,
    Verb::OwnerLost,
    Verb::Claim,
    Verb::Start,
    Verb::Heartbeat,
    Verb::Extend,
    Verb::Checkpoint,
    Verb::Finish,
    Verb::Abandon,
    Verb::Trash,
    Verb::Cancel,
    Verb::Modify,
    Verb::Drop,
    Verb::Redrive,
];

/// Verbs that move a task along are drawn more often, so that deep states are reached.
fn verb() -> impl Strategy<Value = Verb> {
    let along = prop_oneof![
        3 => Just(Verb::Trigger),
        3 => Just(Verb::Claim),
        2 => Just(Verb::Start),
        2 => Just(Verb::Finish),
    ];
    prop_oneof![3 => along, 1 => proptest::sample::select(&VERBS[..])]
}

fn jump() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0_i64..20_000,
        2 => -20_000_i64..0,
        1 => -86_400_000_i64..86_400_000,
    ]
}

pub(crate) fn a_try() -> impl Strategy<Value = Try> {
    (
        verb(),
        proptest::bool::weighted(0.15),
        jump(),
        0_u8..6,
        proptest::sample::select(&RetryClass::ALL[..]),
        proptest::option::weighted(0.2, 0_u32..100_000),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(
            |(verb, stale, jump_ms, outcome, class, delay_ms, flag, random)| Try {
                verb,
                stale,
                jump_ms,
                outcome,
                class,
                delay_ms,
                flag,
                random,
            },
        )
}

fn backoff() -> impl Strategy<Value = Backoff> {
    (0_u64..5_000, 1.0_f64..4.0, 0.0_f64..=1.0, 0_u64..100_000).prop_map(
        |(initial, multiplier, jitter, extra)| {
            let max = Duration::from_millis(initial + extra);
            Backoff::new(Duration::from_millis(initial), multiplier, jitter, max).unwrap()
        },
    )
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let retry = (
        proptest::option::of(0_u32..4),
        backoff(),
        backoff(),
        proptest::option::of(backoff()),
    )
        .prop_map(|(retries_max, standard, quick, worker_lost)| RetryPolicy {
            retries_max,
            standard,
            quick,
            worker_lost,
            ..RetryPolicy::default()
        });
    let ms = || (1_u64..60_000).prop_map(Duration::from_millis);
    (
        retry,
        ms(),
        ms(),
        ms(),
        0_u64..60_000,
        proptest::option::of(ms()),
        0_u32..3,
    )
        .prop_map(
            |(
                retry,
                enqueue_timeout,
                claim_timeout,
                heartbeat_timeout,
                increment,
                run_timeout,
                losses_max,
            )| {
                Policy {
                    retry,
                    enqueue_timeout,
                    claim_timeout,
                    heartbeat_timeout,
                    heartbeat_increment: Duration::from_millis(increment),
                    run_timeout,
                    losses_max,
                    retention: None,
                }
            },
        )
}

/// A task as a submit makes it: due or not, handed on or not, with settings of its own or not.
pub(crate) fn created() -> impl Strategy<Value = Task> {
    let wanted = proptest::option::of((0_u32..3, 1_u64..10_000));
    (
        proptest::option::of(0_i64..100_000),
        any::<bool>(),
        any::<bool>(),
        wanted,
    )
        .prop_map(|(run_at, hand_on, waiting, wanted)| {
            let job = JobName::parse("mail").unwrap();
            let id = TaskId::from_bytes([3; 16]);
            let mut new = NewTask::now(id, job, Bytes::from_static(b"payload"));
            new.run_at = run_at.map(Timestamp::clamped);
            new.extras = wanted.map(|(retries_max, timeout_ms)| {
                let overrides = Some(Overrides {
                    retries_max: Some(retries_max),
                    heartbeat_timeout: Some(Duration::from_millis(timeout_ms)),
                    ..Overrides::default()
                });
                Box::new(Extras {
                    overrides,
                    ..Extras::default()
                })
            });
            let (token, write) = (Token::from_random(1), WriteId::from_random(1));
            let now = Timestamp::clamped(START);
            let mut task = new.into_task(&Policy::default(), now, token, write, hand_on);
            if waiting {
                task.state = State::Waiting;
            }
            task
        })
}

pub(crate) const START: i64 = 200_000_000;

/// The event of a try; `fresh` is a number no token had before.
pub(crate) fn event(task: &Task, attempt: &Try, now: Timestamp, fresh: u64) -> Event {
    let held = task.state.token().unwrap_or(Token::from_random(u64::MAX));
    let token = match attempt.stale {
        true => Token::from_random(u64::MAX - 1),
        false => held,
    };
    let next = Token::from_random(fresh);
    let jitter = Jitter::from_random(attempt.random);
    match attempt.verb {
        Verb::Release => Event::Release { token: next },
        Verb::Trigger => {
            let seen_at = task.state.trigger_at().unwrap_or(now);
            Event::Trigger(Trigger {
                seen: task.kind(),
                seen_at: match attempt.stale {
                    true => seen_at.after(Duration::from_millis(1)),
                    false => seen_at,
                },
                token: next,
                jitter,
            })
        }
        Verb::OwnerLost => Event::OwnerLost(OwnerLost {
            token,
            next,
            jitter,
        }),
        Verb::Claim => Event::Claim(Claim {
            token,
            worker: WorkerId::new("w", attempt.random).unwrap(),
            start: attempt.flag,
        }),
        Verb::Start => Event::Start { token },
        Verb::Heartbeat => Event::Heartbeat { token },
        Verb::Extend => Event::Extend {
            token,
            by: Duration::from_millis(attempt.random % 100_000),
        },
        Verb::Checkpoint => Event::Checkpoint {
            token,
            payload: Bytes::from(attempt.random.to_be_bytes().to_vec()),
        },
        Verb::Finish => Event::Finish {
            token,
            started_at: attempt.flag.then_some(now),
            outcome: outcome(attempt),
            jitter,
        },
        Verb::Abandon => Event::Abandon { token, next },
        Verb::Trash => Event::Trash {
            token,
            reason: "no use".into(),
        },
        Verb::Cancel => Event::Cancel {
            running: match attempt.flag {
                true => RunningCancel::Request,
                false => RunningCancel::Refuse,
            },
            reason: None,
        },
        Verb::Modify => Event::Modify {
            change: Modification {
                run_at: attempt.flag.then(|| now.after(Duration::from_secs(5))),
                priority: Some(Priority::new(7).unwrap()),
                ..Modification::default()
            },
            token: next,
        },
        Verb::Drop => Event::Drop {
            reason: "gate".into(),
        },
        Verb::Redrive => Event::Redrive,
    }
}

fn outcome(attempt: &Try) -> Outcome {
    match attempt.outcome {
        0 => Outcome::Success { result: None },
        1 => Outcome::Fatal {
            error: "é".repeat(4_000).into(),
        },
        2 => Outcome::Cancelled,
        _ => Outcome::Retriable {
            class: attempt.class,
            delay: attempt
                .delay_ms
                .map(|ms| Duration::from_millis(u64::from(ms))),
            error: "no luck".into(),
        },
    }
}
