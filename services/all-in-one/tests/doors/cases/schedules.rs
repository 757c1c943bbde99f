//! Schedules that are refused.

use dueline_api::operation::{
    BackfillSchedule, DeleteSchedule, GetSchedule, ListSchedules, PauseSchedule, PutSchedule,
    TriggerSchedule,
};
use dueline_domain::{RuleSpec, ScheduleName, ScheduleSpec, Timestamp};

use super::*;

fn nightly() -> ScheduleName {
    ScheduleName::parse("nightly").unwrap()
}

fn put(
    name: &'static str,
    (reason, field): (&'static str, &'static str),
    body: Value,
    change: impl FnOnce(&mut ScheduleSpec),
) -> Case {
    let mut spec = ScheduleSpec {
        rule: rule("@daily"),
        ..ScheduleSpec::default()
    };
    change(&mut spec);
    let put = PutSchedule {
        job: mail(),
        name: nightly(),
        spec,
    };
    let path = "jobs/mail/schedules/nightly";
    let fault = (reason, Some(field));
    case(name, fault, (Method::PUT, path, Some(body)), asks(put))
}

/// Asks gRPC and the embedded API for the same.
fn asks(put: PutSchedule) -> Asks {
    let again = put.clone();
    let grpc = move |frontend: FrontendClient| -> Answer {
        Box::pin(async move { frontend.call(&call(), put).await.map(drop) })
    };
    let embedded = move |frontend: Arc<dyn Frontend>| -> Answer {
        Box::pin(async move { frontend.call(&call(), again).await.map(drop) })
    };
    (Box::new(grpc), Some(Box::new(embedded)))
}

fn rule(timing: &str) -> RuleSpec {
    RuleSpec {
        timing: timing.to_owned(),
        ..RuleSpec::default()
    }
}

fn template(spec: &mut ScheduleSpec, change: impl FnOnce(&mut TaskOptions)) {
    change(spec.template.options.get_or_insert_default());
}

pub(super) fn schedules() -> Vec<Case> {
    let mut cases = Vec::new();
    for (timing, reason, field) in [
        ("", "empty", "timing"),
        ("2 1", "field_count", "timing"),
        ("* * 31 2 *", "never_fires", "timing"),
        ("60 * * * *", "out_of_range", "timing.minute"),
        ("@sometimes", "unknown_name", "timing"),
        ("@every 1ms", "invalid_syntax", "timing"),
    ] {
        let name = "a rule that is none";
        let body = json!({ "timing": timing });
        let fault = (reason, field);
        cases.push(put(name, fault, body, |spec| spec.rule = rule(timing)));
    }
    cases.push(put(
        "a zone that does not exist",
        ("unknown_zone", "zone"),
        json!({"timing": "@daily", "zone": "Europe/Atlantis"}),
        |spec| spec.rule.zone = Some("Europe/Atlantis".to_owned()),
    ));
    cases.push(put(
        "an anchor of a cron expression",
        ("not_applicable", "anchor"),
        json!({"timing": "@daily", "anchor": 5}),
        |spec| spec.rule.anchor = Some(Timestamp::clamped(5)),
    ));
    cases.push(put(
        "an end before the start",
        ("empty_range", "end"),
        json!({"timing": "@daily", "start": 5, "end": 4}),
        |spec| {
            let time = |ms| Some(Timestamp::clamped(ms));
            (spec.rule.start, spec.rule.end) = (time(5), time(4));
        },
    ));
    cases.push(put(
        "a jitter of two days",
        ("out_of_range", "jitter_ms"),
        json!({"timing": "@daily", "jitter_ms": 172_800_000}),
        |spec| spec.jitter = Duration::from_secs(172_800),
    ));
    cases.push(put(
        "no firing at all",
        ("out_of_range", "firings_max"),
        json!({"timing": "@daily", "firings_max": 0}),
        |spec| spec.firings_max = Some(0),
    ));
    cases.push(put(
        "a long description",
        ("too_long", "info"),
        json!({"timing": "@daily", "info": "x".repeat(257)}),
        |spec| spec.info = "x".repeat(257).into(),
    ));
    cases.push(put(
        "a key that all tasks would share",
        ("not_applicable", "task.key"),
        json!({"timing": "@daily", "task": {"key": "k"}}),
        |spec| template(spec, |options| options.key = text("k")),
    ));
    cases.push(put(
        "a blank name of the tasks",
        ("blank", "task.name"),
        json!({"timing": "@daily", "task": {"name": " "}}),
        |spec| template(spec, |options| options.name = text(" ")),
    ));
    let large = "x".repeat(16_385);
    cases.push(put(
        "a payload that is too long for a schedule",
        ("too_long", "task.payload"),
        json!({"timing": "@daily", "task": {"payload_text": large}}),
        |spec| spec.template.payload = Bytes::from(large.clone()),
    ));
    cases.extend(raw_puts());
    cases.extend(of_missing_ones());
    cases
}

/// Faults that the types of the client rule out.
fn raw_puts() -> Vec<Case> {
    let spec = || proto::ScheduleSpec {
        timing: "@daily".to_owned(),
        ..Default::default()
    };
    let with_task = |task: proto::NewTask| proto::ScheduleSpec {
        task: Some(task),
        ..spec()
    };
    let mut cases = Vec::new();
    for (name, reason, field, body, spec) in [
        (
            "an id of all tasks",
            "not_applicable",
            "task.id",
            json!({"timing": "@daily", "task": {"id": TASK}}),
            with_task(proto::NewTask {
                id: Some(TASK.to_owned()),
                ..Default::default()
            }),
        ),
        (
            "a due time of all tasks",
            "not_applicable",
            "task.run_at",
            json!({"timing": "@daily", "task": {"run_at": 5}}),
            with_task(proto::NewTask {
                run_at_ms: Some(5),
                ..Default::default()
            }),
        ),
        (
            "a priority that is too high",
            "invalid_priority",
            "task.priority",
            json!({"timing": "@daily", "task": {"priority": 1_001}}),
            with_task(proto::NewTask {
                priority: 1_001,
                ..Default::default()
            }),
        ),
        (
            "a cap without catch-up of all",
            "not_applicable",
            "catch_up_max",
            json!({"timing": "@daily", "catch_up_max": 5}),
            proto::ScheduleSpec {
                catch_up_max: Some(5),
                ..spec()
            },
        ),
        (
            "catch-up of all without a cap",
            "missing_field",
            "catch_up_max",
            json!({"timing": "@daily", "catch_up": "all"}),
            proto::ScheduleSpec {
                catch_up: proto::CatchUp::All.into(),
                ..spec()
            },
        ),
        (
            "a cap of 1001",
            "out_of_range",
            "catch_up_max",
            json!({"timing": "@daily", "catch_up": "all", "catch_up_max": 1_001}),
            proto::ScheduleSpec {
                catch_up: proto::CatchUp::All.into(),
                catch_up_max: Some(1_001),
                ..spec()
            },
        ),
        (
            "a grace of two hours",
            "out_of_range",
            "grace_ms",
            json!({"timing": "@daily", "grace_ms": 7_200_000}),
            proto::ScheduleSpec {
                grace_ms: Some(7_200_000),
                ..spec()
            },
        ),
    ] {
        let path = "jobs/mail/schedules/nightly";
        let asks = raw!(client => async move {
            let request = proto::PutScheduleRequest {
                job: "mail".to_owned(),
                name: "nightly".to_owned(),
                spec: Some(spec),
            };
            status(client.put_schedule(request).await)
        });
        let fault = (reason, Some(field));
        cases.push(case(name, fault, (Method::PUT, path, Some(body)), asks));
    }
    cases
}

fn of_missing_ones() -> Vec<Case> {
    let path = "jobs/mail/schedules/nightly";
    let unknown = ("unknown_schedule", None);
    let (job, name) = (mail, nightly);
    let range = || (Timestamp::clamped(1), Timestamp::clamped(2));
    let (from, to) = range();
    let daily = ScheduleSpec {
        rule: rule("@daily"),
        ..ScheduleSpec::default()
    };
    let put_to_nope = PutSchedule {
        job: nope(),
        name: name(),
        spec: daily,
    };
    vec![
        case(
            "a schedule of a job that does not exist",
            ("unknown_job", None),
            (
                Method::PUT,
                "jobs/nope/schedules/nightly",
                Some(json!({"timing": "@daily"})),
            ),
            asks(put_to_nope),
        ),
        case(
            "a schedule that does not exist",
            unknown,
            (Method::GET, path, None),
            ask!(frontend => frontend.call(&call(), GetSchedule { job: job(), name: name(), next: 5 })),
        ),
        case(
            "101 firings",
            ("out_of_range", Some("next")),
            (Method::GET, &format!("{path}?next=101"), None),
            ask!(frontend => frontend.call(&call(), GetSchedule { job: job(), name: name(), next: 101 })),
        ),
        case(
            "a deletion of a schedule that does not exist",
            unknown,
            (Method::DELETE, path, None),
            ask!(frontend => frontend.call(&call(), DeleteSchedule { job: job(), name: name() })),
        ),
        case(
            "a pause of a schedule that does not exist",
            unknown,
            (Method::POST, &format!("{path}/pause"), None),
            ask!(frontend => frontend.call(&call(), PauseSchedule { job: job(), name: name(), paused: true, reason: None })),
        ),
        case(
            "a blank reason of a pause",
            ("blank", Some("reason")),
            (
                Method::POST,
                &format!("{path}/pause"),
                Some(json!({"reason": " "})),
            ),
            ask!(frontend => frontend.call(&call(), PauseSchedule { job: job(), name: name(), paused: true, reason: text(" ") })),
        ),
        case(
            "a firing of a schedule that does not exist",
            unknown,
            (Method::POST, &format!("{path}/trigger"), None),
            ask!(frontend => frontend.call(&call(), TriggerSchedule { job: job(), name: name() })),
        ),
        case(
            "a backfill of a schedule that does not exist",
            unknown,
            (
                Method::POST,
                &format!("{path}/backfill"),
                Some(json!({"from": 1, "to": 2})),
            ),
            ask!(frontend => frontend.call(&call(), BackfillSchedule { job: job(), name: name(), from, to })),
        ),
        case(
            "a page of 1001 schedules",
            ("out_of_range", Some("limit")),
            (Method::GET, "jobs/mail/schedules?limit=1001", None),
            ask!(frontend => frontend.call(&call(), ListSchedules { job: job(), after: None, limit: 1_001 })),
        ),
        case(
            "schedules of a job that does not exist",
            ("unknown_job", None),
            (Method::GET, "jobs/nope/schedules", None),
            ask!(frontend => frontend.call(&call(), ListSchedules { job: nope(), after: None, limit: 10 })),
        ),
    ]
}
