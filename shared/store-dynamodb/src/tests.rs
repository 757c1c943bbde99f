//! Properties of a stored task after every transition: it is decoded as it was encoded, its hint is never later than
//! its trigger time, and its item stays small.

use std::time::Duration;

use bytes::Bytes;
use dueline_domain::{
    Claim, Effect, Event, Jitter, JobName, Modification, NewTask, Outcome, Overrides, Policy,
    Priority, Reclaim, RetryClass, RetryPolicy, RunningCancel, Settle, Sink, StateKind, Task,
    TaskId, TaskOptions, Timestamp, Token, Trigger, WorkerId, WriteId,
};
use proptest::prelude::*;

use crate::{
    attr,
    encode::{self, IndexEntry},
    hint,
    row::{self, BlobMap, TaskRow},
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
        any::<bool>(),
    )
        .prop_map(
            |(enqueue, claim, heartbeat, increment, run_timeout, losses_max, sink)| Policy {
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
                sink: sink.then(|| Sink::parse("file:done").expect("a sink")),
            },
        )
}

/// Random numbers from which an event is made, depending on the state of the task.
#[derive(Clone, Debug)]
struct EventSeed {
    what: u8,
    pass_ms: i64,
    bytes: usize,
    seconds: u64,
}

fn event_seeds() -> impl Strategy<Value = Vec<EventSeed>> {
    let bytes = prop_oneof![3 => 0_usize..200, 1 => 200_usize..6_000];
    let pass_ms = prop_oneof![6 => 0_i64..3_000, 2 => 0_i64..200_000, 1 => -5_000_i64..0];
    let one = (0_u8..24, pass_ms, bytes, 0_u64..400).prop_map(|(what, pass_ms, bytes, seconds)| {
        EventSeed {
            what,
            pass_ms,
            bytes,
            seconds,
        }
    });
    proptest::collection::vec(one, 1..60)
}

fn event(seed: &EventSeed, task: &Task, number: u64) -> Event {
    let token = task.state.token().unwrap_or(Token::from_random(1));
    let next = Token::from_random(number + 1_000);
    let jitter = Jitter::from_random(number << 40);
    let body = Bytes::from(vec![seed.what; seed.bytes]);
    let text = || "x".repeat(seed.bytes).into();
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
    // Half of the events bring the task forward; the others are arbitrary.
    if seed.bytes.is_multiple_of(2) {
        match task.kind() {
            StateKind::New | StateKind::Retriable => return trigger(),
            StateKind::Enqueued => {
                return Event::Claim(Claim {
                    token,
                    worker: WorkerId::new("executor", number).expect("a worker"),
                    start: seed.seconds.is_multiple_of(2),
                });
            }
            StateKind::Claimed => return Event::Start { token },
            StateKind::Processing => {}
            _ if seed.seconds.is_multiple_of(2) => {
                return Event::Settle(Settle {
                    seen: task.write,
                    effect: Effect::Deliver,
                    failed: (seed.seconds > 100).then(|| ("sink is down".into(), jitter)),
                });
            }
            _ => return Event::Redrive,
        }
    }
    match seed.what {
        0..=3 => trigger(),
        4..=7 => Event::Claim(Claim {
            token,
            worker: WorkerId::new("executor", number).expect("a worker"),
            start: seed.seconds.is_multiple_of(2),
        }),
        8 => Event::Start { token },
        9 | 10 => Event::Heartbeat { token },
        11 => Event::Extend {
            token,
            by: Duration::from_secs(seed.seconds),
        },
        12 => Event::Checkpoint {
            token,
            payload: body,
        },
        13 if seed.seconds < 50 => finish(Outcome::Success { result: Some(body) }),
        13..=16 => finish(Outcome::Retriable {
            class: RetryClass::ALL[seed.bytes % RetryClass::ALL.len()],
            delay: seed
                .seconds
                .is_multiple_of(3)
                .then(|| Duration::from_secs(seed.seconds)),
            error: text(),
        }),
        17 => finish(Outcome::Fatal { error: text() }),
        18 => Event::Abandon { token, next },
        19 => Event::Reclaim(Reclaim {
            token,
            next,
            jitter,
        }),
        20 if seed.seconds < 50 => Event::Cancel {
            running: RunningCancel::Request,
            reason: seed.seconds.is_multiple_of(2).then(text),
        },
        21 => Event::Modify {
            change: Modification {
                run_at: seed
                    .seconds
                    .is_multiple_of(2)
                    .then(|| task.changed_at.after(Duration::from_secs(seed.seconds))),
                priority: Priority::new(seed.seconds.cast_signed() - 200).ok(),
                weight: None,
                payload: seed.seconds.is_multiple_of(3).then_some(body),
            },
            token: next,
        },
        22 => Event::Trash {
            token,
            reason: text(),
        },
        _ => Event::Redrive,
    }
}

/// Everything that is stored for one task.
struct StoredTask {
    row: TaskRow,
    blobs: BlobMap,
}

impl StoredTask {
    fn write(before: Option<&Self>, task: Task, policy: &Policy) -> Self {
        let old = before.map(|stored| &stored.row);
        let due = hint::hint(old.and_then(TaskRow::hint), &task, policy);
        let index_entry = IndexEntry {
            due: due.map(|hint| ("mail#abcdef#0".to_owned(), hint)),
            expires_at: task.finished_at,
        };
        let mut blobs = before
            .map(|stored| stored.blobs.clone())
            .unwrap_or_default();
        let encoded = encode::encode(task, old, index_entry, "t#mail#abcdef#00".len());
        for blob in encoded.new_blobs {
            assert!(
                blobs.insert(blob.name, blob.bytes).is_none(),
                "no blob is overwritten"
            );
        }
        for blob in &encoded.old_blobs {
            assert!(
                blobs.remove(blob).is_some(),
                "only blobs that exist are deleted"
            );
        }
        let mut referenced = row::blob_refs(&encoded.row.item);
        referenced.sort_unstable();
        let mut stored: Vec<_> = blobs.keys().copied().collect();
        stored.sort_unstable();
        assert_eq!(
            stored, referenced,
            "exactly the referenced blobs are stored"
        );
        Self {
            row: encoded.row,
            blobs,
        }
    }

    fn check(&self) {
        let task = &self.row.task;
        let decoded = row::decode(
            &task.job,
            task.id,
            self.row.item.clone(),
            &self.blobs,
            false,
        );
        let decoded = decoded.expect("a valid item");
        assert_eq!(&decoded.task, task);
        assert_eq!(decoded.item, self.row.item);
        let blobs = row::blobs_of(&self.row);
        assert_eq!(blobs, self.blobs, "the blobs of the row are those stored");
        let hint = self.row.hint();
        assert_eq!(
            hint.is_some(),
            !task.kind().is_final() || task.owed.is_some(),
            "the task is in the index exactly while it is unfinished or owes an effect"
        );
        assert_eq!(self.row.due_key().is_some(), hint.is_some());
        if let (Some(hint), Some(trigger_at)) = (hint, task.trigger_at()) {
            assert!(hint <= trigger_at, "{hint} is later than {trigger_at}");
        }
        let (kind, trigger_at) = row::state_and_trigger(&self.row.item).expect("a valid item");
        assert_eq!((kind, trigger_at), (task.kind(), task.trigger_at()));
        // A kibibyte, and the references to 32 past runs that are blobs.
        let bytes = attr::size(&self.row.item);
        assert!(bytes <= 1_024 + 400, "{bytes} bytes in {}", task.kind());
    }
}

fn options(bytes: usize) -> Option<Box<TaskOptions>> {
    (bytes > 50).then(|| {
        Box::new(TaskOptions {
            name: Some("a name".into()),
            details: (bytes > 400).then(|| "d".repeat(bytes).into()),
            key: Some("a key".into()),
            overrides: bytes.is_multiple_of(2).then(|| Overrides {
                heartbeat_timeout: Some(Duration::from_secs(3)),
                ..Overrides::default()
            }),
            ..TaskOptions::default()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn after_every_transition_the_hint_is_not_late_and_the_task_is_decoded_as_encoded(
        policies in (policy(), policy()),
        bytes in prop_oneof![0_usize..700, 700_usize..5_000],
        later in 0_i64..100_000,
        seeds in event_seeds(),
    ) {
        let job = JobName::parse("mail").expect("a name");
        let run_at = (later > 50_000).then(|| at(later));
        let options = options(bytes % 1_000);
        let new = NewTask {
            due: run_at.into(),
            options,
            ..NewTask::now(TaskId::from_bytes([9; 16]), job, vec![1; bytes].into())
        };
        let (mut now_ms, mut transitions) = (0, 0);
        let mut policy = &policies.0;
        let task = new.into_task(policy, at(0), Token::from_random(7), WriteId::from_random(9), true);
        let mut stored = StoredTask::write(None, task, policy);
        stored.check();
        for (number, seed) in (10_u64..).zip(&seeds) {
            now_ms += seed.pass_ms;
            // The policy of a job may change between any two transitions.
            if number == 20 {
                policy = &policies.1;
            }
            let task = &stored.row.task;
            let write = WriteId::from_random(number);
            let event = event(seed, task, number);
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
            stored = StoredTask::write(Some(&stored), after, policy);
            stored.check();
            transitions += 1;
        }
        // Without transitions the test would check nothing.
        prop_assert!(seeds.len() < 40 || transitions >= 5 || stored.row.task.kind().is_final());
    }
}

#[test]
fn a_payload_becomes_a_blob_exactly_when_it_would_start_another_kibibyte() {
    let store = |bytes: usize| {
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
        StoredTask::write(None, task, &policy)
    };
    for bytes in [0, 1, 500, 580] {
        assert!(store(bytes).blobs.is_empty(), "{bytes} bytes in the item");
    }
    for bytes in [1_024, 50_000] {
        let stored = store(bytes);
        assert_eq!(stored.blobs.len(), 1, "{bytes} bytes as a blob");
        assert!(attr::size(&stored.row.item) < 300);
    }
}

#[test]
fn new_attributes_use_only_the_space_that_past_runs_leave() {
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
    let mut stored = StoredTask::write(None, task, &policy);
    for (number, event) in (10..).zip([claim(7), failed, again, claim(8), checkpoint]) {
        let (write, now) = (
            WriteId::from_random(number),
            at(1_000 * number.cast_signed() - 9_000),
        );
        let task = &stored.row.task;
        let transition = dueline_domain::apply(task, &policy, &event, write, now);
        let mut after = task.clone();
        after.advance(transition.unwrap_or_else(|error| panic!("{event:?}: {error}")));
        stored = StoredTask::write(Some(&stored), after, &policy);
        stored.check();
    }
    assert_eq!(
        stored.blobs.len(),
        1,
        "the error is in the item, the checkpoint is a blob"
    );
    let bytes = attr::size(&stored.row.item);
    assert!((400..1_024).contains(&bytes), "{bytes} bytes");
}

#[test]
fn an_unknown_state_is_an_error() {
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
        StoredTask::write(None, task, &policy)
    };
    let mut item = stored.row.item.clone();
    item.insert(row::name::STATE.into(), attr::num(77));
    let job = &stored.row.task.job;
    let blobs = BlobMap::new();
    let decoded = row::decode(job, stored.row.task.id, item.clone(), &blobs, false);
    assert!(decoded.is_err_and(|invalid| invalid.to_string().contains("77")));
    assert!(row::state_and_trigger(&item).is_err());
    assert_eq!(stored.row.task.kind(), StateKind::Enqueued);
}
