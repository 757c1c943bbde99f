//! A schedule that is put through one door is the same through each of them, and its tasks run.

use std::time::Duration;

use dueline_api::{
    Call, Callable as _,
    operation::{
        BackfillSchedule, DeleteSchedule, GetJob, GetSchedule, ListSchedules, PauseSchedule,
        PutSchedule, ShownSchedule, TriggerSchedule,
    },
    v1::ScheduleView,
};
use dueline_domain::{
    CatchUp, CatchUpPolicy, Overlap, RuleSpec, ScheduleName, ScheduleSpec, TaskOptions,
    TaskTemplate, Timestamp, WriteId,
};
use dueline_ports::ListQuery;
use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{TestNode, mail};

fn name(text: &str) -> ScheduleName {
    ScheduleName::parse(text).unwrap()
}

fn json_of(shown: ShownSchedule) -> Value {
    serde_json::to_value(ScheduleView::try_from(shown).unwrap()).unwrap()
}

/// A schedule as each door shows it, as JSON.
async fn shown(node: &TestNode, text: &str) -> [Value; 3] {
    let call = Call::default();
    let get = GetSchedule {
        job: mail(),
        name: name(text),
        next: 3,
    };
    let path = format!("jobs/mail/schedules/{text}?next=3");
    let mut embedded = node.frontend().call(&call, get.clone()).await.unwrap();
    // The gRPC door hides it.
    embedded.schedule.write = WriteId::HIDDEN;
    let grpc = node.grpc().call(&call, get).await.unwrap();
    assert_eq!(grpc, embedded);
    let rest = node.send(Method::GET, &path, None).await;
    [rest, json_of(grpc), json_of(embedded)]
}

fn full() -> (Value, ScheduleSpec) {
    let json = json!({
        "info": "of the night", "timing": "30 2 * * *", "zone": "Europe/Berlin",
        "start": 1_000, "end": "2100-01-01T00:00:00Z", "jitter_ms": 5_000, "catch_up": "all",
        "catch_up_max": 9, "grace_ms": 7_000, "overlap": "cancel_previous", "firings_max": 1_000,
        "task": {
            "priority": "high", "weight": 3, "payload": {"a": 1}, "name": "n", "tags": ["x", "y"],
            "details": {"d": 1}, "content_type": "application/json", "retries_max": 2,
        },
    });
    let spec = ScheduleSpec {
        info: "of the night".into(),
        rule: RuleSpec {
            timing: "30 2 * * *".to_owned(),
            zone: Some("Europe/Berlin".to_owned()),
            start: Some(Timestamp::clamped(1_000)),
            end: Some(Timestamp::clamped(4_102_444_800_000)),
            anchor: None,
        },
        jitter: Duration::from_secs(5),
        catch_up: CatchUpPolicy::new(CatchUp::All { max: 9 }, Duration::from_secs(7)).unwrap(),
        overlap: Overlap::CancelPrevious,
        firings_max: Some(1_000),
        template: TaskTemplate {
            priority: "high".parse().unwrap(),
            weight: dueline_domain::Weight::new(3).unwrap(),
            payload: r#"{"a":1}"#.into(),
            options: Some(Box::new(TaskOptions {
                name: Some("n".into()),
                details: Some(r#"{"d":1}"#.into()),
                tags: vec!["x".into(), "y".into()],
                content_type: Some("application/json".into()),
                overrides: Some(dueline_domain::Overrides {
                    retries_max: Some(2),
                    ..Default::default()
                }),
                ..TaskOptions::default()
            })),
        },
    };
    (json, spec)
}

#[tokio::test(flavor = "multi_thread")]
async fn f_015_the_frequency_of_a_job_is_the_same_through_rest_grpc_and_embedded() {
    let node = TestNode::start().await;
    let call = Call::default();
    let get = |frequency| GetJob {
        name: mail(),
        frequency,
    };
    let doors = async || {
        let rest = node.send(Method::GET, "jobs/mail", None).await;
        let grpc = node.grpc().call(&call, get(true)).await.unwrap();
        let embedded = node.frontend().call(&call, get(true)).await.unwrap();
        assert_eq!(grpc, embedded);
        assert_eq!(rest["frequency"], json!(grpc.frequency));
        grpc.frequency
    };
    assert_eq!(doors().await, None);
    let rule = json!({"timing": "30 2 * * *", "zone": "Europe/Berlin"});
    let path = "jobs/mail/schedules/nightly";
    node.send(Method::PUT, path, Some(&rule)).await;
    let frequency = doors().await;
    assert_eq!(frequency.as_deref(), Some("30 2 * * * Europe/Berlin"));
    let unread = node.grpc().call(&call, get(false)).await.unwrap();
    assert_eq!(unread.frequency, None, "the call did not ask for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_103_g_05_a_schedule_is_the_same_through_rest_grpc_and_embedded() {
    let node = TestNode::start().await;
    let call = Call::default();
    let (json, spec) = full();
    let put = |text: &str| PutSchedule {
        job: mail(),
        name: name(text),
        spec: spec.clone(),
    };
    let rest = node
        .send(Method::PUT, "jobs/mail/schedules/rest", Some(&json))
        .await;
    assert_eq!(rest["name"], "rest", "{rest}");
    node.grpc().call(&call, put("grpc")).await.unwrap();
    node.frontend().call(&call, put("embedded")).await.unwrap();
    let mut all = Vec::new();
    for text in ["rest", "grpc", "embedded"] {
        let views = shown(&node, text).await;
        assert_eq!(views[0], views[1], "{text}");
        assert_eq!(views[1], views[2], "{text}");
        let [mut view, ..] = views;
        for field in ["name", "created_at", "changed_at"] {
            view[field] = Value::Null;
        }
        all.push(view);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[1], all[2]);
    assert_eq!(all[0]["next"].as_array().unwrap().len(), 3);
    assert_eq!(all[0]["status"], "active");
    let local = all[0]["next"][0]["local"].as_str().unwrap();
    assert!(
        local.contains("T02:30:00+") || local.contains("T03:00:00+"),
        "{local}"
    );

    let list = ListSchedules {
        job: mail(),
        after: Some(name("embedded")),
        limit: 1,
    };
    let page = node.grpc().call(&call, list).await.unwrap();
    assert_eq!(page.schedules[0].schedule.name, name("grpc"));
    assert_eq!(page.next, Some(name("grpc")));
    let rest = node
        .send(
            Method::GET,
            "jobs/mail/schedules?after=embedded&limit=1",
            None,
        )
        .await;
    assert_eq!(rest["schedules"][0]["name"], "grpc");
    assert_eq!(rest["next"], "grpc");
    // A bad rule keeps the old one.
    let refused = node
        .send(
            Method::PUT,
            "jobs/mail/schedules/rest",
            Some(&json!({"timing": "2 1"})),
        )
        .await;
    assert_eq!(refused["reason"], "field_count");
    assert_eq!(shown(&node, "rest").await[0]["timing"], "30 2 * * *");
    // The job is not deleted before its schedules.
    let refused = node.send(Method::DELETE, "jobs/mail", None).await;
    assert_eq!(refused["reason"], "has_schedules", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_100_f_102_g_05_verbs_of_a_schedule_work_through_each_door() {
    let node = TestNode::start().await;
    let call = Call::default();
    let yearly = json!({"timing": "@yearly", "overlap": "allow", "task": {"payload": "x"}});
    for text in ["rest", "grpc"] {
        let path = format!("jobs/mail/schedules/{text}");
        let put = node.send(Method::PUT, &path, Some(&yearly)).await;
        assert_eq!(put["status"], "active", "{put}");
    }
    let rest = async |verb: &str, body: Value| {
        let path = format!("jobs/mail/schedules/rest/{verb}");
        node.send(Method::POST, &path, Some(&body)).await
    };
    let (job, grpc) = (mail(), node.grpc());
    let pause = |paused, reason: Option<&str>| PauseSchedule {
        job: mail(),
        name: name("grpc"),
        paused,
        reason: reason.map(Into::into),
    };
    let paused = rest("pause", json!({"reason": "why"})).await;
    assert_eq!(paused["paused"]["reason"], "why", "{paused}");
    assert_eq!(paused["status"], "paused");
    let paused = grpc.call(&call, pause(true, Some("why"))).await.unwrap();
    assert_eq!(&*paused.schedule.paused.unwrap().reason, "why");
    // A pause does not stop what users request.
    assert!(rest("trigger", json!({})).await["triggers"][0].is_string());
    let range = json!({"from": "2020-06-01T00:00:00Z", "to": "2023-06-01T00:00:00Z"});
    let answer = rest("backfill", range).await;
    assert_eq!(answer["backfills"].as_array().unwrap().len(), 1, "{answer}");
    let trigger = TriggerSchedule {
        job: mail(),
        name: name("grpc"),
    };
    grpc.call(&call, trigger).await.unwrap();
    let backfill = |from, to| BackfillSchedule {
        job: mail(),
        name: name("grpc"),
        from: Timestamp::clamped(from),
        to: Timestamp::clamped(to),
    };
    let range = backfill(1_590_969_600_000, 1_685_577_600_000);
    grpc.call(&call, range).await.unwrap();
    for text in ["rest", "grpc"] {
        let tasks = node.fired(text, 4).await;
        let nominal: Vec<_> = tasks[..3]
            .iter()
            .map(|task| task["nominal_at"].clone())
            .collect();
        let years = ["2021", "2022", "2023"].map(|year| format!("{year}-01-01T00:00:00.000Z"));
        assert_eq!(nominal, years, "{text}");
        for task in tasks {
            assert_eq!(
                (&task["schedule"], &task["payload"]),
                (&json!(text), &json!("x"))
            );
        }
    }
    for (from, to, reason, field) in [(5, 5, "empty_range", "to"), (5, 6, "never_fires", "from")] {
        let range = json!({"from": from, "to": to});
        let refused = rest("backfill", range).await;
        assert_eq!(
            (&refused["reason"], &refused["field"]),
            (&json!(reason), &json!(field))
        );
        let refused = grpc.call(&call, backfill(from, to)).await.unwrap_err();
        assert_eq!(
            (refused.reason().name(), refused.field()),
            (reason, Some(field))
        );
    }
    assert_eq!(rest("resume", json!({})).await["paused"], Value::Null);
    let resumed = grpc.call(&call, pause(false, None)).await.unwrap();
    assert_eq!(resumed.schedule.paused, None);

    // D-04: what has been created stays when its schedule is deleted.
    let path = "jobs/mail/schedules/rest";
    node.send(Method::DELETE, path, None).await;
    let delete = DeleteSchedule {
        job: mail(),
        name: name("grpc"),
    };
    grpc.call(&call, delete).await.unwrap();
    for text in ["rest", "grpc"] {
        let query = ListQuery {
            schedule: Some(name(text)),
            ..ListQuery::of(job.clone())
        };
        let list = dueline_api::operation::ListTasks(query);
        assert_eq!(grpc.call(&call, list).await.unwrap().tasks.len(), 4);
    }
    let gone = node.send(Method::GET, path, None).await;
    assert_eq!(gone["reason"], "unknown_schedule");
}
