//! Workers over HTTP.

use std::time::Duration;

use serde_json::json;

use crate::kit::{Kit, routes};

#[tokio::test(start_paused = true)]
async fn f_021_one_read_tells_everything() {
    let kit = Kit::with_job().await;
    let body = r#"{"payload": {"to": "x"}, "name": "n", "tags": ["t"], "key": "k", "weight": 2,
        "priority": "high", "retries_max": 1, "heartbeat_timeout_ms": 9000, "run_timeout_ms": 60000}"#;
    let path = kit.submit(body).await;
    let (work, token) = kit.claim("host@1").await;
    kit.report(&format!("{work}/start"), &token, "")
        .await
        .expect(200);
    tokio::time::advance(Duration::from_secs(2)).await;
    let checkpoint = format!("{work}/checkpoint");
    kit.report(&checkpoint, &token, r#""payload": {"done": 1}"#)
        .await
        .expect(200);
    let task = kit.get(&path).await.expect(200);
    for (field, value) in [
        ("job", json!("mail")),
        ("queue", json!("mail")),
        ("state", json!("processing")),
        ("status", json!("running")),
        ("board", json!("claimed")),
        ("name", json!("n")),
        ("tags", json!(["t"])),
        ("key", json!("k")),
        ("priority", json!(50)),
        ("weight", json!(2)),
        ("payload", json!({"to": "x"})),
        ("checkpoint", json!({"done": 1})),
        ("tries", json!(1)),
        ("attempt", json!(0)),
        ("retries_max", json!(1)),
        (
            "backoff",
            json!({"initial_ms": 10000, "multiplier": 1.0, "jitter": 0.0, "max_ms": 10000}),
        ),
        ("heartbeat_timeout_ms", json!(9000)),
        ("run_timeout_ms", json!(60000)),
        ("owner", json!("host@1")),
        ("started_at", json!("2023-11-14T22:13:20.000Z")),
        ("claimed_at", json!("2023-11-14T22:13:20.000Z")),
        ("heartbeat_at", json!("2023-11-14T22:13:22.000Z")),
        ("expires_at", json!("2023-11-14T22:13:31.000Z")),
        ("deadline_at", json!("2023-11-14T22:14:20.000Z")),
        ("trigger_at", json!("2023-11-14T22:13:31.000Z")),
        ("finished_at", json!(null)),
        ("runs", json!([])),
    ] {
        assert_eq!(task.json[field], value, "{field} of {}", task.body);
    }
    assert!(
        !task.body.contains(&token),
        "the token is the owner's alone"
    );

    kit.report(&format!("{work}/fail"), &token, r#""error": "e1""#)
        .await
        .expect(200);
    let task = kit.get(&path).await.expect(200);
    assert_eq!(task.json["owner"], json!(null));
    assert_eq!(task.json["expires_at"], json!(null));
    let run = &task.json["runs"][0];
    assert_eq!(
        (&run["attempt"], &run["worker"], &run["end"], &run["info"]),
        (
            &json!(0),
            &json!("host@1"),
            &json!("retriable"),
            &json!("e1")
        )
    );
    let unknown = "/v1/jobs/mail/tasks/6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e";
    kit.get(unknown)
        .await
        .problem(404, "not-found", "unknown_task");
}

#[tokio::test(start_paused = true)]
async fn a_poll_for_an_unknown_job_is_refused_at_once() {
    let kit = Kit::with_job().await;
    kit.submit("{}").await;
    let ask = r#"{"worker": "w@1", "jobs": ["mail", "mial"], "wait_ms": 20000}"#;
    let reply = kit.post("/v1/work:next", ask).await;
    reply.problem(404, "not-found", "unknown_job");
    // The known job was not polled for.
    kit.claim("w@1").await;
}

#[tokio::test(start_paused = true)]
async fn f_070_f_071_the_status_follows_the_task_through_its_life() {
    let kit = Kit::with_job().await;
    let later = kit.submit(r#"{"delay_ms": 60000}"#).await;
    let see = async |path: &str, state: &str, status: &str| {
        let task = kit.get(path).await.expect(200);
        assert_eq!((task.text("state"), task.text("status")), (state, status));
    };
    see(&later, "new", "pending").await;
    let path = kit.submit("{}").await;
    see(&path, "enqueued", "pending").await;
    let (work, token) = kit.claim("w@1").await;
    see(&path, "claimed", "running").await;
    kit.report(&format!("{work}/start"), &token, "")
        .await
        .expect(200);
    see(&path, "processing", "running").await;
    kit.report(&format!("{work}/fail"), &token, r#""error": "e""#)
        .await
        .expect(200);
    see(&path, "retriable", "pending").await;
    kit.post(&format!("{path}/cancel"), "").await.expect(200);
    see(&path, "cancelled", "cancelled").await;

    for (verb, fields, state, status) in [
        ("complete", "", "succeeded", "succeeded"),
        ("fail", r#""error": "e", "fatal": true"#, "failed", "failed"),
        ("trash", r#""reason": "r""#, "trashed", "failed"),
    ] {
        let path = kit.submit("{}").await;
        let (work, token) = kit.claim("w@1").await;
        kit.report(&format!("{work}/start"), &token, "")
            .await
            .expect(200);
        kit.report(&format!("{work}/{verb}"), &token, fields)
            .await
            .expect(200);
        see(&path, state, status).await;
    }
}

#[tokio::test(start_paused = true)]
async fn f_042_texts_reach_the_history_and_a_second_end_is_a_conflict() {
    let kit = Kit::with_job().await;
    let path = kit.submit("{}").await;
    let (work, token) = kit.claim("w@1").await;
    // The outcome brings its own start: one report for the whole run.
    let complete = format!("{work}/complete");
    let fields = r#""result_text": "sent 3 mails", "started_at": 1700000000000"#;
    let reported = kit.report(&complete, &token, fields).await.expect(200);
    assert_eq!(reported.text("state"), "succeeded");
    assert_eq!(reported.json["lease_ms"], json!(null));
    let task = kit.get(&path).await.expect(200);
    assert_eq!(task.json["runs"][0]["end"], "succeeded");
    assert_eq!(task.json["runs"][0]["info"], "sent 3 mails");
    for (verb, fields) in [("complete", ""), ("fail", r#""error": "e""#)] {
        let again = kit.report(&format!("{work}/{verb}"), &token, fields).await;
        again.problem(409, "conflict", "finished");
        assert_eq!(again.text("state"), "succeeded");
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_repeated_under_its_name_succeeds_again() {
    let kit = Kit::with_job().await;
    kit.submit("{}").await;
    let (work, token) = kit.claim("w@1").await;
    let fields = r#""write_id": "00000000000000aa", "started_at": 1700000000000"#;
    for _ in 0..2 {
        let reply = kit
            .report(&format!("{work}/complete"), &token, fields)
            .await;
        assert_eq!(reply.expect(200).text("state"), "succeeded");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_used_for_two_reports_does_not_make_them_one() {
    let kit = Kit::with_job().await;
    let path = kit.submit("{}").await;
    let (work, token) = kit.claim("w@1").await;
    let name = r#""write_id": "00000000000000aa""#;
    for (verb, state) in [
        ("start", "processing"),
        ("start", "processing"),
        ("complete", "succeeded"),
        ("complete", "succeeded"),
    ] {
        let reply = kit.report(&format!("{work}/{verb}"), &token, name).await;
        assert_eq!(reply.expect(200).text("state"), state);
    }
    assert_eq!(kit.get(&path).await.text("state"), "succeeded");
    let other = kit.report(&format!("{work}/start"), &token, name).await;
    other.problem(409, "conflict", "finished");
}

#[tokio::test(start_paused = true)]
async fn f_057_classes_have_their_own_waits_and_unknown_ones_are_refused() {
    let kit = Kit::with_job().await;
    for (fields, wait_ms) in [
        (r#""error": "e", "class": "quick""#, 100),
        (r#""error": "e", "class": "slow""#, 60_000),
        (r#""error": "e""#, 10_000),
        (r#""error": "e", "delay_ms": 1234"#, 1_234),
    ] {
        let path = kit.submit("{}").await;
        let (work, token) = kit.claim("w@1").await;
        kit.report(&format!("{work}/start"), &token, "")
            .await
            .expect(200);
        let fail = format!("{work}/fail");
        let bad = kit
            .report(&fail, &token, r#""error": "e", "class": "fast""#)
            .await;
        bad.problem(400, "invalid", "unknown_class");
        kit.report(&fail, &token, fields).await.expect(200);
        let id = path.rsplit('/').next().unwrap();
        let task = kit
            .store
            .snapshot()
            .into_iter()
            .find(|t| t.id.to_string() == id)
            .unwrap();
        let wait = task.state.trigger_at().unwrap().since(task.changed_at);
        assert_eq!(wait.as_millis(), wait_ms, "{fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn f_053_an_owner_extends_its_lease_by_more_than_nothing() {
    let kit = Kit::with_job().await;
    kit.submit("{}").await;
    let (work, token) = kit.claim("w@1").await;
    let extend = format!("{work}/extend");
    let reply = kit
        .report(&extend, &token, r#""by_ms": 45000"#)
        .await
        .expect(200);
    assert_eq!(reply.json["lease_ms"], 45_000);
    for by in ["0", "-5"] {
        let reply = kit
            .report(&extend, &token, &format!(r#""by_ms": {by}"#))
            .await;
        reply.problem(400, "invalid", "invalid_duration");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_token_is_refused_and_a_wrong_one_is_no_token() {
    let kit = Kit::with_job().await;
    kit.submit("{}").await;
    let (work, token) = kit.claim("w@1").await;
    let start = format!("{work}/start");
    let lost = kit.report(&start, "00000000000000ff", "").await;
    lost.problem(409, "conflict", "lost");
    assert_eq!(lost.text("owner"), "w@1");
    let bad = kit.report(&start, "1", "").await;
    bad.problem(400, "invalid", "invalid_value");
    assert_eq!(bad.text("field"), "token");
    kit.post(&start, "{}")
        .await
        .problem(400, "invalid", "missing_field");
    kit.post(&start, "")
        .await
        .problem(400, "invalid", "no_body");
    let given_back = kit
        .report(&format!("{work}/abandon"), &token, "")
        .await
        .expect(200);
    assert_eq!(given_back.text("state"), "enqueued");
}

#[tokio::test(start_paused = true)]
async fn an_assignment_tells_all_that_a_run_takes() {
    let kit = Kit::new();
    let spec = r#"{"handler": {"kind": "exec", "config": {"command": ["cat"]}}, "claim_timeout_ms": 5000}"#;
    kit.put("/v1/jobs/mail", spec).await.expect(201);
    let body = r#"{"payload": {"a":  1.0}, "name": "n", "weight": 3}"#;
    kit.submit(body).await;
    let ask = r#"{"worker": "w@1", "jobs": ["mail"], "tasks_max": 5, "wait_ms": 100}"#;
    let work = kit.post("/v1/work:next", ask).await.expect(200);
    let task = &work.json["tasks"][0];
    assert_eq!(
        task["handler"],
        json!({"kind": "exec", "config": {"command": ["cat"]}})
    );
    assert_eq!((&task["attempt"], &task["weight"]), (&json!(0), &json!(3)));
    assert_eq!(task["claim_timeout_ms"], 5000);
    assert_eq!(task["token"].as_str().unwrap().len(), 16);
    assert!(
        work.body.contains(r#""payload":{"a":  1.0}"#),
        "{}",
        work.body
    );
    let none = kit.post("/v1/work:next", ask).await.expect(200);
    assert_eq!(none.json, json!({"tasks": []}));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_asks_for_nothing_is_refused() {
    let kit = Kit::with_job().await;
    for (ask, reason) in [
        (r#"{"worker": "w@1"}"#, "no_job"),
        (r#"{"worker": "w@1", "jobs": [""]}"#, "invalid_value"),
        (r#"{"worker": "", "jobs": ["mail"]}"#, "invalid_value"),
        (r#"{"jobs": ["mail"]}"#, "missing_field"),
        (
            r#"{"worker": "w@1", "handlers": ["java"]}"#,
            "unknown_handler",
        ),
        (
            r#"{"worker": "w@1", "jobs": ["mail"], "tasks_max": 0}"#,
            "out_of_range",
        ),
        (
            r#"{"worker": "w@1", "jobs": ["mail"], "weight_max": 0}"#,
            "out_of_range",
        ),
    ] {
        kit.post("/v1/work:next", ask)
            .await
            .problem(400, "invalid", reason);
    }
}

#[tokio::test(start_paused = true)]
async fn f_115_workers_register_are_listed_and_leave() {
    let kit = Kit::with_job().await;
    let body = r#"{"worker": "host@1", "jobs": ["mail"], "handlers": ["exec"], "concurrency": 8}"#;
    let alive = kit.post("/v1/workers", body).await.expect(200);
    assert_eq!(alive.json, json!({"interval_ms": 2500}));
    let list = kit.get("/v1/workers").await.expect(200);
    assert_eq!(
        list.json["workers"],
        json!([{
            "id": "host@1", "kind": "executor", "jobs": ["mail"], "handlers": ["exec"],
            "concurrency": 8, "embedded": false,
            "started_at": "2023-11-14T22:13:20.000Z", "seen_at": "2023-11-14T22:13:20.000Z"
        }])
    );
    kit.delete("/v1/workers/host@1").await.expect(204);
    let list = kit.get("/v1/workers").await.expect(200);
    assert_eq!(list.json, json!({"workers": []}));
}

#[tokio::test(start_paused = true)]
async fn a_frontend_without_a_controller_hands_out_no_work() {
    let kit = Kit::with_job().await;
    let alone = routes(kit.frontend.clone(), None, Default::default());
    let ask = r#"{"worker": "w@1", "jobs": ["mail"]}"#;
    let reply = crate::kit::call(&alone, "POST", "/v1/work:next", &[], ask).await;
    reply.problem(404, "not-found", "no_work_here");
}
