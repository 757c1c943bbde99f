//! Cancelling, modifying and redriving.

use std::time::Duration;

use dueline_domain::Timestamp;
use serde_json::json;

use crate::kit::{Kit, START_MS};

#[tokio::test(start_paused = true)]
async fn f_106_a_task_that_has_not_started_is_cancelled_for_good() {
    let kit = Kit::with_job().await;
    for body in [r#"{"delay_ms": 600000}"#, "{}"] {
        let path = kit.submit(body).await;
        let cancel = format!("{path}/cancel");
        let task = kit
            .post(&cancel, r#"{"reason": "not needed"}"#)
            .await
            .expect(200);
        assert_eq!(task.text("state"), "cancelled");
        assert_eq!(task.text("error"), "not needed");
        assert_eq!(task.json["trigger_at"], json!(null));
        let again = kit.post(&cancel, "").await;
        again.problem(409, "conflict", "finished");
        assert_eq!(again.text("state"), "cancelled");
    }
    // The message of the second one is still there, and claims nothing.
    assert_eq!(kit.queue.of("mail").len(), 1);
    let ask = r#"{"worker": "w@1", "jobs": ["mail"]}"#;
    kit.post("/v1/work:next", ask)
        .await
        .problem(409, "conflict", "finished");
    let unknown = "/v1/jobs/mail/tasks/6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e/cancel";
    kit.post(unknown, "")
        .await
        .problem(404, "not-found", "unknown_task");
}

#[tokio::test(start_paused = true)]
async fn f_106_a_running_task_is_left_alone_unless_its_worker_is_to_be_asked() {
    let kit = Kit::with_job().await;
    let path = kit.submit("{}").await;
    let (work, token) = kit.claim("w@1").await;
    kit.report(&format!("{work}/start"), &token, "")
        .await
        .expect(200);
    let cancel = format!("{path}/cancel");
    let refused = kit.post(&cancel, "").await;
    refused.problem(409, "conflict", "running");
    assert_eq!(refused.text("owner"), "w@1");
    kit.post(&cancel, r#"{"running": "kill"}"#)
        .await
        .problem(400, "invalid", "unknown_value");
    let asked = kit
        .post(&cancel, r#"{"running": "request"}"#)
        .await
        .expect(200);
    assert_eq!(asked.json["cancel_requested"], true);
    let beat = kit
        .report(&format!("{work}/heartbeat"), &token, "")
        .await
        .expect(200);
    assert_eq!(beat.json["cancel_requested"], true);
    let stop = format!("{work}/fail");
    kit.report(&stop, &token, r#""cancelled": true"#)
        .await
        .expect(200);
    assert_eq!(kit.get(&path).await.text("state"), "cancelled");
}

#[tokio::test(start_paused = true)]
async fn f_107_a_pending_task_is_rescheduled_and_modified_and_keeps_the_rest() {
    let kit = Kit::with_job().await;
    let body = r#"{"delay_ms": 600000, "name": "n", "payload": 1, "tags": ["t"]}"#;
    let path = kit.submit(body).await;
    kit.due.take();
    let now = format!(r#"{{"run_at": {START_MS}}}"#);
    let task = kit.patch(&path, &now).await.expect(200);
    assert_eq!(task.text("run_at"), "2023-11-14T22:13:20.000Z");
    assert_eq!((task.text("name"), &task.json["payload"]), ("n", &json!(1)));
    assert_eq!(kit.due.take(), Some(Timestamp::clamped(START_MS)));

    let all = r#"{"delay_ms": 5000, "priority": "high", "weight": 9, "payload": {"x": 2}}"#;
    let task = kit.patch(&path, all).await.expect(200);
    assert_eq!(task.text("run_at"), "2023-11-14T22:13:25.000Z");
    assert_eq!(
        (&task.json["priority"], &task.json["weight"]),
        (&json!(50), &json!(9))
    );
    assert_eq!(task.json["payload"], json!({"x": 2}));

    for (body, reason) in [
        ("{}", "no_change"),
        ("", "no_change"),
        ("null", "no_change"),
        (r#"{"id": "x"}"#, "unknown_field"),
        (r#"{"weight": 0}"#, "invalid_weight"),
        (r#"{"run_at": 1, "delay_ms": 1}"#, "ambiguous"),
    ] {
        kit.patch(&path, body).await.problem(400, "invalid", reason);
    }
}

#[tokio::test(start_paused = true)]
async fn f_107_a_queued_task_that_moves_to_later_leaves_a_message_that_claims_nothing() {
    let kit = Kit::with_job().await;
    let path = kit.submit("{}").await;
    let task = kit.patch(&path, r#"{"delay_ms": 60000}"#).await.expect(200);
    assert_eq!(task.text("state"), "new");
    let ask = r#"{"worker": "w@1", "jobs": ["mail"]}"#;
    kit.post("/v1/work:next", ask)
        .await
        .problem(409, "conflict", "not_due");

    let path = kit.submit("{}").await;
    kit.patch(&path, r#"{"priority": "very_high"}"#)
        .await
        .expect(200);
    let sent: Vec<i16> = kit
        .queue
        .of("mail")
        .iter()
        .map(|m| m.priority.get())
        .collect();
    assert_eq!(
        sent,
        [0, 100],
        "a queued task is sent again with its new priority"
    );
}

#[tokio::test(start_paused = true)]
async fn f_108_running_and_finished_tasks_are_not_changed() {
    let kit = Kit::with_job().await;
    let path = kit.submit(r#"{"payload": 1}"#).await;
    let (work, token) = kit.claim("w@1").await;
    let change = r#"{"payload": 2, "weight": 2}"#;
    kit.patch(&path, change)
        .await
        .problem(409, "conflict", "running");
    kit.report(&format!("{work}/start"), &token, "")
        .await
        .expect(200);
    kit.patch(&path, change)
        .await
        .problem(409, "conflict", "running");
    kit.report(&format!("{work}/complete"), &token, "")
        .await
        .expect(200);
    kit.patch(&path, change)
        .await
        .problem(409, "conflict", "finished");
    let task = kit.get(&path).await.expect(200);
    assert_eq!(
        (&task.json["payload"], &task.json["weight"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_redriven_with_a_fresh_count() {
    let kit = Kit::with_job().await;
    let path = kit.submit("{}").await;
    let redrive = format!("{path}/redrive");
    kit.post(&redrive, "")
        .await
        .problem(409, "conflict", "not_finished");
    let (work, token) = kit.claim("w@1").await;
    kit.report(&format!("{work}/start"), &token, "")
        .await
        .expect(200);
    let fields = r#""error": "broken", "fatal": true"#;
    kit.report(&format!("{work}/fail"), &token, fields)
        .await
        .expect(200);
    let failed = kit.get(&path).await.expect(200);
    assert_eq!(
        (failed.text("state"), failed.text("error")),
        ("failed", "broken")
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    kit.due.take();
    let task = kit.post(&redrive, "").await.expect(200);
    assert_eq!(
        (task.text("state"), &task.json["tries"]),
        ("new", &json!(0))
    );
    assert_eq!(task.json["runs"][0]["end"], "fatal");
    assert!(kit.due.take().is_some());
}

#[tokio::test(start_paused = true)]
async fn f_011_a_reschedule_shows_the_original_run_time() {
    let kit = Kit::with_job().await;
    let path = kit.submit(r#"{"delay_ms": 60000}"#).await;
    let task = kit.get(&path).await.expect(200);
    let submitted = task.json["run_at"].clone();
    assert_eq!(task.json.get("original_run_at"), None);
    for delay in ["120000", "180000"] {
        let body = format!(r#"{{"delay_ms": {delay}}}"#);
        kit.patch(&path, &body).await.expect(200);
    }
    let task = kit.get(&path).await.expect(200);
    assert_eq!(task.json["original_run_at"], submitted);
    assert_eq!(task.json["run_at"], "2023-11-14T22:16:20.000Z");
}

#[tokio::test(start_paused = true)]
async fn f_077_a_task_names_the_worker_that_trashed_or_finished_it() {
    let kit = Kit::with_job().await;
    let trashed = kit.submit("{}").await;
    let (work, token) = kit.claim("w@1").await;
    let trash = format!("{work}/trash");
    kit.report(&trash, &token, r#""reason": "broken""#)
        .await
        .expect(200);
    let task = kit.get(&trashed).await.expect(200);
    assert_eq!(
        (task.text("state"), task.text("last_owner")),
        ("trashed", "w@1")
    );
    assert_eq!(task.json["owner"], json!(null));
    let done = kit.submit("{}").await;
    let (work, token) = kit.claim("w@2").await;
    for report in ["start", "complete"] {
        let report = format!("{work}/{report}");
        kit.report(&report, &token, "").await.expect(200);
    }
    let task = kit.get(&done).await.expect(200);
    assert_eq!(
        (task.text("state"), task.text("last_owner")),
        ("succeeded", "w@2")
    );
    assert_eq!(task.json["runs"][0]["worker"], "w@2");
}
