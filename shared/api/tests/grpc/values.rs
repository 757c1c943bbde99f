//! Values with everything in them, and values with nothing in them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_api::{ApiError, Assignment, ErrorKind, ErrorReason, PredecessorResult};
use dueline_domain::{
    Backoff, Due, FairShare, Family, Handler, HeldUntil, History, Job, JobName, Lease, NewTask,
    OnConflict, Overrides, Policy, Predecessor, Priority, Quota, RetryPolicy, RunEnd, RunRecord,
    State, StateKind, Task, TaskAddress, TaskEnd, TaskId, TaskOptions, TaskRef, Timestamp, Token,
    TriggerOn, Unique, Weight, WorkerId, WriteId, limits,
};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) fn name(text: &str) -> JobName {
    JobName::parse(text).unwrap()
}

pub(crate) fn worker() -> WorkerId {
    WorkerId::new("host-7/pool", u64::MAX).unwrap()
}

pub(crate) fn id(number: u8) -> TaskId {
    TaskId::from_bytes([number; 16])
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

pub(crate) fn largest() -> Bytes {
    let bytes = (0..limits().payload_bytes_max).map(|n| u8::try_from(n % 251).unwrap());
    bytes.collect::<Vec<_>>().into()
}

/// Errors with all their fields, with none, and with the longest text there is.
pub(crate) fn errors() -> Vec<ApiError> {
    let mut errors: Vec<_> = ErrorKind::ALL
        .into_iter()
        .map(|kind| {
            let reason = ErrorReason::from_name(&kind.name().replace('-', "_"));
            ApiError::new(kind, reason, "went wrong")
        })
        .collect();
    errors.push(
        ApiError::new(
            ErrorKind::Conflict,
            ErrorReason::Lost,
            "cannot start: größer als 1 €\n\t%20",
        )
        .with_field("tasks.payload")
        .with_state(StateKind::Processing)
        .with_owner(Some(worker()))
        .with_retry_after(Duration::from_millis(1_234)),
    );
    let longest = "ß".repeat(limits().error_bytes_max / 2);
    errors.push(ApiError::new(
        ErrorKind::Invalid,
        ErrorReason::TooLong,
        longest,
    ));
    errors
}

pub(crate) fn backoff(initial_ms: u32) -> Backoff {
    let initial = MS * initial_ms;
    Backoff::new(initial, 1.1, 0.3, Policy::TIMEOUT_MAX).unwrap()
}

pub(crate) fn plain_job() -> Job {
    Job {
        name: name("a"),
        info: Arc::from(""),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        fair_share: None,
        paused: false,
        created_by: Arc::from(""),
        created_at: Timestamp::EPOCH,
        changed_at: Timestamp::EPOCH,
    }
}

pub(crate) fn rich_job() -> Job {
    Job {
        name: name(&"N-_9".repeat(16)),
        info: Arc::from("sends mail — nightly"),
        handler: Handler {
            kind: Arc::from("exec"),
            config: Arc::from(r#"{"command": ["echo", "ä"], "n": 1.0}"#),
        },
        policy: Policy {
            retry: RetryPolicy {
                retries_max: None,
                standard: backoff(1),
                quick: backoff(2),
                slow: backoff(3),
                rate_limited: backoff(4),
                worker_lost: Some(backoff(0)),
            },
            enqueue_timeout: MS * 110,
            claim_timeout: MS * 120,
            heartbeat_timeout: MS * 130,
            heartbeat_increment: Duration::ZERO,
            run_timeout: Some(MS * 15),
            losses_max: 0,
            retention: Some(Duration::ZERO),
            sink: dueline_domain::Sink::parse("https://a.example/x").ok(),
        },
        quota: Quota {
            rate_per_s: Some(0.1),
            burst: Some(u32::MAX),
            running_max: Some(1_000),
        },
        fair_share: Some(FairShare {
            running_max: Some(7),
        }),
        paused: true,
        created_by: Arc::from("ann"),
        created_at: at(1),
        changed_at: Timestamp::MAX,
    }
}

pub(crate) fn options() -> TaskOptions {
    TaskOptions {
        name: Some(Arc::from(" ü ")),
        details: Some(Arc::from(r#"{"for": "people"}"#)),
        tags: vec![Arc::from("a"), Arc::from(" b")],
        key: Some(Arc::from("k".repeat(256))),
        unique: None,
        created_by: Some(Arc::from("ann")),
        content_type: Some(Arc::from("application/json")),
        trace: Some(Arc::from("00-abc-def-01")),
        overrides: Some(Overrides {
            retries_max: Some(0),
            backoff: Some(backoff(9)),
            heartbeat_timeout: Some(MS * 300),
            heartbeat_increment: Some(Duration::ZERO),
            run_timeout: Some(MS * 5),
        }),
        fairness_key: Some("acme".into()),
        takes_turns: false,
        original_run_at: None,
        firing: None,
        family: Some(Box::new(Family {
            after: vec![Predecessor::open(TaskAddress {
                job: name("a"),
                id: id(9),
            })],
            trigger_on: TriggerOn::Failure,
            ..Family::default()
        })),
    }
}

pub(crate) fn plain_submit() -> NewTask {
    NewTask::now(id(0), name("a"), Bytes::new())
}

pub(crate) fn unique_submit() -> NewTask {
    let options = TaskOptions {
        key: Some(Arc::from("k")),
        unique: Some(Box::new(Unique {
            until: HeldUntil::Deleted,
            period: Some(MS * 3),
            on_conflict: OnConflict::Replace,
            max_delay: Some(MS * 4),
            replaced: 0,
        })),
        ..TaskOptions::default()
    };
    NewTask {
        options: Some(Box::new(options)),
        ..plain_submit()
    }
}

pub(crate) fn rich_submit() -> NewTask {
    NewTask {
        id: id(255),
        id_is_given: true,
        job: name("b"),
        due: Due::At(Timestamp::MAX),
        priority: Priority::new(Priority::MIN.into()).unwrap(),
        weight: Weight::new(Weight::MAX.into()).unwrap(),
        payload: largest(),
        options: Some(Box::new(options())),
    }
}

/// A task of each state.
pub(crate) fn tasks() -> Vec<Task> {
    let token = Token::HIDDEN;
    let lease = |deadline_at| Lease {
        worker: worker(),
        claimed_at: at(5),
        heartbeat_at: at(6),
        expires_at: Timestamp::MAX,
        deadline_at,
    };
    let states = [
        State::Waiting {
            check_at: Timestamp::clamped(9),
        },
        State::New { due_at: at(0) },
        State::Enqueued {
            token,
            expires_at: at(7),
        },
        State::Claimed {
            token,
            lease: lease(None),
        },
        State::Processing {
            token,
            lease: lease(Some(at(9).after(Policy::RUN_GRACE))),
        },
        State::Retriable { retry_at: at(8) },
        State::Succeeded,
        State::Failed,
        State::Cancelled,
        State::Trashed,
        State::Dropped,
    ];
    states.into_iter().map(rich_task).collect()
}

fn rich_task(state: State) -> Task {
    let run = |end| RunRecord {
        attempt: 3,
        worker: worker(),
        started_at: at(1),
        finished_at: at(2),
        end,
        info: Arc::from("exit status 1"),
    };
    Task {
        state,
        started_at: Some(at(3)),
        finished_at: Some(Timestamp::EPOCH),
        last_owner: Some(worker()),
        tries: u32::MAX,
        losses: 2,
        cancel_requested: true,
        checkpoint: Some(Bytes::new()),
        result: Some(Bytes::from_static(b"\0\xff")),
        error: Some(Arc::from("")),
        history: Some(Box::new(History {
            runs: RunEnd::ALL.into_iter().map(run).collect(),
            dropped: 4,
        })),
        ..bare_task(rich_submit())
    }
}

/// A task as it was submitted.
pub(crate) fn bare_task(submit: NewTask) -> Task {
    let (token, write) = (Token::from_random(1), WriteId::from_random(2));
    submit
        .into_task(&Policy::default(), at(1), token, write, true)
        .without_secrets()
}

pub(crate) fn task_ref(number: u8) -> TaskRef {
    TaskRef {
        job: name("b"),
        id: id(number),
        token: Token::from_random(u64::from(number) + (1 << 63)),
        priority: Priority::new(Priority::MAX.into()).unwrap(),
        weight: Weight::new(Weight::MAX.into()).unwrap(),
        due_at: Timestamp::MAX,
        trace: (number % 2 == 1).then(|| Arc::from("00-abc-def-01")),
    }
}

pub(crate) fn plain_assignment(number: u8) -> Assignment {
    Assignment {
        job: name("a"),
        id: id(number),
        token: Token::from_random(u64::from(number) + 1),
        attempt: 0,
        input: Bytes::new(),
        content_type: None,
        name: None,
        weight: Weight::ONE,
        run_at: Timestamp::EPOCH,
        claimed_at: Timestamp::EPOCH,
        handler: Handler::worker(),
        claim_timeout: MS,
        heartbeat_timeout: MS,
        heartbeat_increment: Duration::ZERO,
        run_timeout: None,
        start_first: false,
        started_before: false,
        trace: None,
        started: false,
        results: Vec::new(),
        waited: Duration::ZERO,
    }
}

fn address(number: u8) -> TaskAddress {
    let (job, id) = (name("a"), id(number));
    TaskAddress { job, id }
}

pub(crate) fn rich_assignment() -> Assignment {
    Assignment {
        attempt: u32::MAX,
        input: largest(),
        content_type: Some(Arc::from("text/plain")),
        name: Some(Arc::from(" ü ")),
        weight: Weight::new(Weight::MAX.into()).unwrap(),
        run_at: Timestamp::MAX,
        claimed_at: Timestamp::MAX,
        handler: rich_job().handler,
        claim_timeout: Duration::from_millis(u64::MAX),
        heartbeat_timeout: MS * 2,
        heartbeat_increment: MS * 3,
        run_timeout: Some(MS * 4),
        start_first: true,
        started_before: true,
        trace: Some(Arc::from("00-abc-def-01")),
        started: true,
        results: vec![
            PredecessorResult {
                task: address(1),
                end: Some(TaskEnd::ChildrenFailed),
                bytes: Some(u64::MAX),
                result: None,
            },
            PredecessorResult {
                task: address(2),
                end: None,
                bytes: Some(1),
                result: Some(Bytes::from(vec![7; limits().results_bytes_max])),
            },
        ],
        waited: MS * 5,
        ..plain_assignment(254)
    }
}
