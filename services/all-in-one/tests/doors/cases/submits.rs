//! Submits that are refused.

use super::*;
use dueline_api::operation::Submit;
use dueline_domain::{Family, OnConflict, Predecessor, TaskAddress, TriggerOn, Unique};

fn submit(
    name: &'static str,
    fault: (&'static str, Option<&'static str>),
    body: Value,
    task: NewTask,
) -> Case {
    let again = task.clone();
    let path = format!("jobs/{}/tasks", task.job);
    let grpc = move |frontend: FrontendClient| -> Answer {
        // The raw client, because the other one refuses such tasks itself.
        Box::pin(async move {
            let request = proto::SubmitRequest {
                tasks: vec![task.into()],
            };
            submitted(frontend.raw().submit(request).await)
        })
    };
    let embedded = move |frontend: Arc<dyn Frontend>| -> Answer {
        Box::pin(async move {
            frontend
                .call(&call(), Submit { tasks: vec![again] })
                .await
                .unwrap()
                .remove(0)
                .map(drop)
        })
    };
    let asks: Asks = (Box::new(grpc), Some(Box::new(embedded)));
    case(name, fault, (Method::POST, &path, Some(body)), asks)
}

/// No task has this id.
const UNKNOWN: &str = "6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4f";

fn after(ids: &[&str], trigger_on: TriggerOn) -> TaskOptions {
    after_of("mail", ids, trigger_on)
}

fn after_of(job: &str, ids: &[&str], trigger_on: TriggerOn) -> TaskOptions {
    let address = |id: &&str| TaskAddress {
        job: JobName::parse(job).unwrap(),
        id: TaskId::parse(id).unwrap(),
    };
    TaskOptions {
        family: Some(Box::new(Family {
            after: ids.iter().map(address).map(Predecessor::open).collect(),
            trigger_on,
            ..Family::default()
        })),
        ..TaskOptions::default()
    }
}

fn unique(key: Option<&str>, unique: Unique) -> TaskOptions {
    TaskOptions {
        key: key.map(Arc::from),
        unique: Some(Box::new(unique)),
        ..TaskOptions::default()
    }
}

pub(super) fn submits() -> Vec<Case> {
    let long = "x".repeat(257);
    let none = TaskOptions::default;
    let details = |json: &str| TaskOptions {
        details: text(json),
        ..none()
    };
    let tags = |tags: Vec<&str>| TaskOptions {
        tags: tags.into_iter().map(Arc::from).collect(),
        ..none()
    };
    let timeouts = |overrides: Overrides| TaskOptions {
        overrides: Some(overrides),
        ..none()
    };
    let ms = |millis| Some(Duration::from_millis(millis));
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(128), "]".repeat(128));
    let deep_value: Value =
        serde_json::from_str(&format!("{{\"details\": {deep}}}")).unwrap_or_else(|_| json!({}));
    let many: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    let large = "x".repeat(262_145);
    let mut cases = Vec::new();
    for field in ["name", "key", "fairness_key", "content_type"] {
        let options = |value: &str| {
            let mut options = none();
            match field {
                "name" => options.name = text(value),
                "key" => options.key = text(value),
                "fairness_key" => options.fairness_key = text(value),
                _ => options.content_type = text(value),
            }
            options
        };
        let body = |value: &str| json!({ field: value });
        cases.push(submit(
            "a blank text",
            ("blank", Some(field)),
            body("  "),
            with(options("  ")),
        ));
        cases.push(submit(
            "a long text",
            ("too_long", Some(field)),
            body(&long),
            with(options(&long)),
        ));
    }
    cases.extend([
        submit(
            "a large payload",
            ("payload_too_large", Some("payload")),
            json!({ "payload_text": large }),
            NewTask {
                payload: Bytes::from(large.clone()),
                ..with(none())
            },
        ),
        submit(
            "an unknown predecessor",
            ("unknown_predecessor", Some("after")),
            json!({"after": [{"id": UNKNOWN}]}),
            with(after(&[UNKNOWN], TriggerOn::Success)),
        ),
        submit(
            "a predecessor of an unknown job",
            ("unknown_predecessor", Some("after")),
            json!({"after": [{"job": "nowhere", "id": TASK}]}),
            with(after_of("nowhere", &[TASK], TriggerOn::Success)),
        ),
        submit(
            "a task that waits for itself",
            ("cycle", Some("after")),
            json!({"id": UNKNOWN, "after": [{"id": TASK}, {"id": UNKNOWN}]}),
            NewTask {
                id: TaskId::parse(UNKNOWN).unwrap(),
                id_is_given: true,
                ..with(after(&[TASK, UNKNOWN], TriggerOn::Success))
            },
        ),
        submit(
            "many predecessors",
            ("too_many", Some("after")),
            json!({"after": vec![json!({"id": TASK}); 33]}),
            with(after(&[TASK; 33], TriggerOn::Success)),
        ),
        submit(
            "a rule without predecessors",
            ("no_predecessor", Some("trigger_on")),
            json!({"trigger_on": "always"}),
            with(after(&[], TriggerOn::Always)),
        ),
        submit(
            "many tags",
            ("too_many", Some("tags")),
            json!({ "tags": many }),
            with(tags(many.iter().map(String::as_str).collect())),
        ),
        submit(
            "a blank tag",
            ("blank", Some("tags")),
            json!({"tags": ["a", ""]}),
            with(tags(vec!["a", ""])),
        ),
        submit(
            "a long tag",
            ("too_long", Some("tags")),
            json!({ "tags": [long] }),
            with(tags(vec![&long])),
        ),
        submit(
            "details that are a list",
            ("invalid_type", Some("details")),
            json!({"details": [1]}),
            with(details("[1]")),
        ),
        submit(
            "long details",
            ("too_long", Some("details")),
            json!({"details": {"a": "x".repeat(16_384)}}),
            with(details(&json!({"a": "x".repeat(16_384)}).to_string())),
        ),
        submit(
            "a short heartbeat timeout",
            ("invalid_timeout", Some("heartbeat_timeout_ms")),
            json!({"heartbeat_timeout_ms": 99}),
            with(timeouts(Overrides {
                heartbeat_timeout: ms(99),
                ..Overrides::default()
            })),
        ),
        submit(
            "no time to run",
            ("invalid_timeout", Some("run_timeout_ms")),
            json!({"run_timeout_ms": 0}),
            with(timeouts(Overrides {
                run_timeout: ms(0),
                ..Overrides::default()
            })),
        ),
        submit(
            "an increment of years",
            ("invalid_timeout", Some("heartbeat_increment_ms")),
            json!({"heartbeat_increment_ms": 99_999_999_999_u64}),
            with(timeouts(Overrides {
                heartbeat_increment: ms(99_999_999_999),
                ..Overrides::default()
            })),
        ),
        submit(
            "a unique task without a key",
            ("missing_field", Some("key")),
            json!({"unique": {}}),
            with(unique(None, Unique::default())),
        ),
        submit(
            "a period of zero",
            ("out_of_range", Some("unique.period_ms")),
            json!({"key": "k", "unique": {"period_ms": 0}}),
            with(unique(
                Some("k"),
                Unique {
                    period: ms(0),
                    ..Unique::default()
                },
            )),
        ),
        submit(
            "a delay of more than a year",
            ("out_of_range", Some("unique.max_delay_ms")),
            json!({"key": "k", "unique": {"on_conflict": "replace", "max_delay_ms": 31_622_400_001_u64}}),
            with(unique(
                Some("k"),
                Unique {
                    on_conflict: OnConflict::Replace,
                    max_delay: ms(31_622_400_001),
                    ..Unique::default()
                },
            )),
        ),
        submit(
            "a maximal delay of what is never replaced",
            ("not_applicable", Some("unique.max_delay_ms")),
            json!({"key": "k", "unique": {"max_delay_ms": 1}}),
            with(unique(
                Some("k"),
                Unique {
                    max_delay: ms(1),
                    ..Unique::default()
                },
            )),
        ),
        submit(
            "a unique task that waits for another one",
            ("not_applicable", Some("unique")),
            json!({"key": "k", "unique": {}, "after": [{"id": TASK}]}),
            with(TaskOptions {
                family: after(&[TASK], TriggerOn::Success).family,
                ..unique(Some("k"), Unique::default())
            }),
        ),
        submit(
            "an unknown job",
            ("unknown_job", None),
            json!({}),
            NewTask {
                job: JobName::parse("nope").unwrap(),
                ..with(none())
            },
        ),
        submit(
            "an id that another task has",
            ("exists", None),
            json!({"id": TASK, "delay_ms": 5, "weight": 2}),
            NewTask {
                id: id(),
                id_is_given: true,
                weight: dueline_domain::Weight::new(2).unwrap(),
                ..with(none())
            },
        ),
    ]);
    // A JSON value of this depth cannot be built here, so the text goes as it is where it can be built.
    if deep_value != json!({}) {
        cases.push(submit(
            "deep details",
            ("too_deep", Some("details")),
            deep_value,
            with(details(&deep)),
        ));
    }
    cases
}

/// Submits with numbers and names that the embedded API has no values for.
pub(super) fn raw_submits() -> Vec<Case> {
    use proto::{Backoff, NewTask, Overrides, TaskOptions};
    let task = || NewTask {
        job: "mail".into(),
        ..NewTask::default()
    };
    let backoff = |backoff: Backoff| NewTask {
        options: Some(TaskOptions {
            overrides: Some(Overrides {
                backoff: Some(backoff),
                ..Overrides::default()
            }),
            ..TaskOptions::default()
        }),
        ..task()
    };
    let fine = Backoff {
        initial_ms: 10,
        multiplier: 2.0,
        jitter: 0.0,
        max_ms: 100,
    };
    [
        (
            "a weight of zero",
            ("invalid_weight", Some("weight")),
            json!({"weight": 0}),
            NewTask { weight: Some(0), ..task() },
        ),
        (
            "a weight above the most",
            ("invalid_weight", Some("weight")),
            json!({"weight": 10_001}),
            NewTask { weight: Some(10_001), ..task() },
        ),
        (
            "a priority above the highest",
            ("invalid_priority", Some("priority")),
            json!({"priority": 1_001}),
            NewTask { priority: 1_001, ..task() },
        ),
        (
            "an id that is no UUID",
            ("invalid_id", Some("id")),
            json!({"id": "7"}),
            NewTask { id: Some("7".into()), ..task() },
        ),
        (
            "two due times",
            ("ambiguous", Some("run_at")),
            json!({"run_at": 1, "delay_ms": 1}),
            NewTask { run_at_ms: Some(1), delay_ms: Some(1), ..task() },
        ),
        (
            "a growth below one",
            ("invalid_backoff", Some("backoff")),
            json!({"backoff": {"initial_ms": 10, "multiplier": 0.5, "jitter": 0.0, "max_ms": 100}}),
            backoff(Backoff { multiplier: 0.5, ..fine }),
        ),
        (
            "a jitter above one",
            ("invalid_backoff", Some("backoff")),
            json!({"backoff": {"initial_ms": 10, "multiplier": 2.0, "jitter": 1.5, "max_ms": 100}}),
            backoff(Backoff { jitter: 1.5, ..fine }),
        ),
        (
            "a wait of years",
            ("too_long", Some("backoff.max_ms")),
            json!({"backoff": {"initial_ms": 10, "multiplier": 2.0, "jitter": 0.0, "max_ms": 99_999_999_999_u64}}),
            backoff(Backoff { max_ms: 99_999_999_999, ..fine }),
        ),
    ]
    .into_iter()
    .map(|(name, fault, body, task)| {
        let asks = raw!(client => async move {
            let request = proto::SubmitRequest { tasks: vec![task] };
            submitted(client.submit(request).await)
        });
        case(name, fault, (Method::POST, "jobs/mail/tasks", Some(body)), asks)
    })
    .collect()
}
