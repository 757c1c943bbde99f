//! Random tasks, policies and events.

use std::time::Duration;

use bytes::Bytes;
use dueline_domain::{
    Adopt, Backoff, Claim, Close, EdgeKind, Effect, Event, Family, FromRun, Jitter, JobName,
    Modification, NewTask, Outcome, Overrides, Policy, Predecessor, Priority, Reclaim, Release,
    Replacement, RetryClass, RetryPolicy, Revive, RunEnded, RunningCancel, Settle, Sink, State,
    Task, TaskAddress, TaskEnd, TaskId, TaskOptions, Timestamp, Token, Trigger, Verb, WorkerId,
    WriteId,
};
use proptest::prelude::*;

/// A random event whose tokens and states are not yet chosen: they depend on the task that the event meets.
#[derive(Clone, Debug)]
pub(crate) struct EventDraft {
    pub(crate) verb: Verb,
    /// Whether the event carries a stale token, or a trigger a stale trigger time.
    pub(crate) stale: bool,
    /// How far the clock jumps before the event, in either direction.
    pub(crate) jump_ms: i64,
    /// Selects the outcome of a finish.
    pub(crate) outcome: u8,
    pub(crate) class: RetryClass,
    pub(crate) delay_ms: Option<u32>,
    /// The option of verbs that have one: claim and start in one write, request a stop of the run, a new time, start
    /// and outcome in one write.
    pub(crate) flag: bool,
    pub(crate) random: u64,
}

const VERBS: [Verb; 23] = [
    Verb::Close,
    Verb::Follow,
    Verb::Release,
    Verb::Trigger,
    Verb::Reclaim,
    Verb::Claim,
    Verb::Start,
    Verb::Heartbeat,
    Verb::Extend,
    Verb::Checkpoint,
    Verb::Stage,
    Verb::Adopt,
    Verb::Finish,
    Verb::Abandon,
    Verb::Trash,
    Verb::Cancel,
    Verb::Modify,
    Verb::Replace,
    Verb::Drop,
    Verb::Redrive,
    Verb::Revive,
    Verb::Reopen,
    Verb::Settle,
];

/// Verbs that lead to later states are drawn more often, so that all states are reached.
fn verb() -> impl Strategy<Value = Verb> {
    let progressing = prop_oneof![
        3 => Just(Verb::Trigger),
        3 => Just(Verb::Claim),
        2 => Just(Verb::Start),
        2 => Just(Verb::Finish),
    ];
    prop_oneof![3 => progressing, 1 => proptest::sample::select(&VERBS[..])]
}

fn jump() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0_i64..20_000,
        2 => -20_000_i64..0,
        1 => -86_400_000_i64..86_400_000,
    ]
}

pub(crate) fn event_draft() -> impl Strategy<Value = EventDraft> {
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
            |(verb, stale, jump_ms, outcome, class, delay_ms, flag, random)| EventDraft {
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
        proptest::option::of(Just(Sink::parse("file:done").unwrap())),
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
                sink,
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
                    sink,
                }
            },
        )
}

/// A new task: due or not, enqueued or not, with overrides or without.
pub(crate) fn created() -> impl Strategy<Value = Task> {
    let overrides = proptest::option::of((0_u32..3, 1_u64..10_000));
    (
        proptest::option::of(0_i64..100_000),
        any::<bool>(),
        any::<bool>(),
        overrides,
    )
        .prop_map(|(run_at, may_enqueue, waiting, overrides)| {
            let job = JobName::parse("mail").unwrap();
            let id = TaskId::from_bytes([3; 16]);
            let mut new = NewTask::now(id, job, Bytes::from_static(b"payload"));
            new.due = run_at.map(Timestamp::clamped).into();
            new.options = overrides.map(|(retries_max, timeout_ms)| {
                let overrides = Some(Overrides {
                    retries_max: Some(retries_max),
                    heartbeat_timeout: Some(Duration::from_millis(timeout_ms)),
                    ..Overrides::default()
                });
                Box::new(TaskOptions {
                    overrides,
                    ..TaskOptions::default()
                })
            });
            let (token, write) = (Token::from_random(1), WriteId::from_random(1));
            let now = Timestamp::clamped(START);
            let mut task = new.into_task(&Policy::default(), now, token, write, may_enqueue);
            if waiting {
                let after = vec![Predecessor::open(predecessor())];
                task.options.get_or_insert_default().family = Some(Box::new(Family {
                    after,
                    from_run: may_enqueue.then(|| from_run(Token::from_random(FIRST_RUN))),
                    ..Family::default()
                }));
                task.state = State::Waiting {
                    check_at: now.after(Family::CHECK_FIRST),
                };
            }
            task
        })
}

/// The task that a task that waits waits for.
fn predecessor() -> TaskAddress {
    let job = JobName::parse("import").unwrap();
    let id = TaskId::from_bytes([4; 16]);
    TaskAddress { job, id }
}

/// The number of the run that submits the first staged task.
const FIRST_RUN: u64 = 90;

fn from_run(token: Token) -> FromRun {
    FromRun {
        task: predecessor(),
        token,
        end: None,
    }
}

/// The run that has submitted a task.
fn run_of(task: &Task) -> Token {
    let run = task.family().and_then(|family| family.from_run.as_ref());
    run.map_or(Token::from_random(FIRST_RUN), |run| run.token)
}

pub(crate) const START: i64 = 200_000_000;

/// The event of a draft for a task. `fresh` is the number of a new token.
pub(crate) fn event(task: &Task, draft: &EventDraft, now: Timestamp, fresh: u64) -> Event {
    let current = task.state.token().unwrap_or(Token::from_random(u64::MAX));
    let token = match draft.stale {
        true => Token::from_random(u64::MAX - 1),
        false => current,
    };
    let next = Token::from_random(fresh);
    let jitter = Jitter::from_random(draft.random);
    match draft.verb {
        Verb::Follow => Event::Follow(match draft.flag {
            true => EdgeKind::Child,
            false => EdgeKind::Follower,
        }),
        Verb::Close => Event::Close(Close {
            seen: match draft.stale {
                true => WriteId::from_random(u64::MAX - 1),
                false => task.write,
            },
            failed: draft.flag.then_some(1),
        }),
        Verb::Release if draft.random.is_multiple_of(2) => Event::RunEnded(RunEnded {
            run: run_of(task),
            succeeded: !draft.stale,
            token: draft.flag.then_some(next),
        }),
        Verb::Release => Event::Release(Release {
            kind: EdgeKind::Follower,
            from: predecessor(),
            end: match draft.stale {
                true => TaskEnd::Failed,
                false => TaskEnd::Succeeded,
            },
            token: draft.flag.then_some(next),
        }),
        Verb::Trigger => {
            let seen_at = task.state.trigger_at().unwrap_or(now);
            Event::Trigger(Trigger {
                seen: task.kind(),
                seen_at: match draft.stale {
                    true => seen_at.after(Duration::from_millis(1)),
                    false => seen_at,
                },
                token: next,
                jitter,
            })
        }
        Verb::Reclaim => Event::Reclaim(Reclaim {
            token,
            next,
            jitter,
        }),
        Verb::Claim => Event::Claim(Claim {
            token,
            worker: WorkerId::new("w", draft.random).unwrap(),
            start: draft.flag,
        }),
        Verb::Start => Event::Start { token },
        Verb::Heartbeat => Event::Heartbeat { token },
        Verb::Extend => Event::Extend {
            token,
            by: Duration::from_millis(draft.random % 100_000),
        },
        Verb::Checkpoint => Event::Checkpoint {
            token,
            payload: Bytes::from(draft.random.to_be_bytes().to_vec()),
        },
        Verb::Stage => Event::Stage { token },
        Verb::Adopt => Event::Adopt(Box::new(Adopt {
            seen: match draft.stale {
                true => next,
                false => run_of(task),
            },
            family: Family {
                from_run: Some(from_run(next)),
                ..Family::default()
            },
            change: Modification::default(),
        })),
        Verb::Finish => Event::Finish {
            token,
            started_at: draft.flag.then_some(now),
            outcome: outcome(draft),
            jitter,
        },
        Verb::Abandon => Event::Abandon { token, next },
        Verb::Trash => Event::Trash {
            token,
            reason: "no use".into(),
        },
        Verb::Cancel => Event::Cancel {
            running: match draft.flag {
                true => RunningCancel::Request,
                false => RunningCancel::Refuse,
            },
            reason: None,
        },
        Verb::Modify => Event::Modify {
            change: Modification {
                run_at: draft.flag.then(|| now.after(Duration::from_secs(5))),
                priority: Some(Priority::new(7).unwrap()),
                ..Modification::default()
            },
            token: next,
        },
        Verb::Replace => Event::Replace(Box::new(Replacement {
            change: Modification {
                run_at: draft.flag.then(|| now.after(Duration::from_secs(5))),
                priority: Some(Priority::new(7).unwrap()),
                ..Modification::default()
            },
            options: None,
            token: Some(next),
        })),
        Verb::Drop => Event::Drop {
            reason: "gate".into(),
        },
        Verb::Redrive => Event::Redrive,
        Verb::Revive => Event::Revive(Revive {
            kind: EdgeKind::Follower,
            from: predecessor(),
        }),
        Verb::Reopen => Event::Reopen,
        Verb::Settle => Event::Settle(Settle {
            seen: match draft.stale {
                true => WriteId::from_random(u64::MAX - 1),
                false => task.write,
            },
            effect: Effect::Deliver,
            failed: draft.flag.then(|| ("sink is down".into(), jitter)),
        }),
    }
}

fn outcome(draft: &EventDraft) -> Outcome {
    match draft.outcome {
        0 => Outcome::Success { result: None },
        1 => Outcome::Fatal {
            error: "é".repeat(4_000).into(),
        },
        2 => Outcome::Cancelled,
        _ => Outcome::Retriable {
            class: draft.class,
            delay: draft
                .delay_ms
                .map(|ms| Duration::from_millis(u64::from(ms))),
            error: "no luck".into(),
        },
    }
}
