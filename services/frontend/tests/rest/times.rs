//! When tasks are due.

use dueline_domain::Timestamp;

use crate::kit::{Kit, START_MS};

#[tokio::test(start_paused = true)]
async fn f_009_a_future_task_waits_for_its_time_and_the_consumer_is_told() {
    let kit = Kit::with_job().await;
    kit.due.take();
    let due = START_MS + 5_000;
    for body in [
        format!(r#"{{"run_at": {due}}}"#),
        r#"{"run_at": "2023-11-14T22:13:25Z"}"#.to_owned(),
        r#"{"run_at": "2023-11-15T00:13:25+02:00"}"#.to_owned(),
        r#"{"delay_ms": 5000}"#.to_owned(),
    ] {
        let path = kit.submit(&body).await;
        let task = kit.get(&path).await.expect(200);
        assert_eq!(task.text("state"), "new");
        assert_eq!(task.text("run_at"), "2023-11-14T22:13:25.000Z");
        assert_eq!(task.text("trigger_at"), "2023-11-14T22:13:25.000Z");
        assert_eq!(kit.due.take(), Some(Timestamp::clamped(due)));
    }
    assert!(
        kit.queue.of("mail").is_empty(),
        "nothing is sent before its time"
    );
}

#[tokio::test(start_paused = true)]
async fn f_009_what_is_no_time_is_refused() {
    let kit = Kit::with_job().await;
    for bad in [
        "\"soon\"",
        "\"10000-01-01T00:00:00Z\"",
        "253402300800000",
        "-1",
        "1.5",
        "true",
        "\"2023-11-14T22:13:25\"",
    ] {
        let body = format!(r#"{{"run_at": {bad}}}"#);
        let reply = kit.post("/v1/jobs/mail/tasks", &body).await;
        assert_eq!(reply.text("kind"), "invalid", "{bad}");
        assert_eq!(reply.text("field"), "run_at", "{bad}");
    }
    let reply = kit
        .post("/v1/jobs/mail/tasks", r#"{"run_at": 1, "delay_ms": 1}"#)
        .await;
    reply.problem(400, "invalid", "ambiguous");
    assert!(kit.store.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn f_010_a_past_or_present_time_is_enqueued_at_once() {
    let kit = Kit::with_job().await;
    for (sent, at) in [START_MS, START_MS - 3_600_000, 0].into_iter().enumerate() {
        let path = kit.submit(&format!(r#"{{"run_at": {at}}}"#)).await;
        let task = kit.get(&path).await.expect(200);
        assert_eq!(task.text("state"), "enqueued");
        assert_eq!(kit.queue.of("mail").len(), sent + 1);
    }
    let scheduled = kit.get("/v1/jobs/mail/tasks?state=new").await.expect(200);
    assert_eq!(scheduled.json["tasks"].as_array().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn f_011_a_retry_moves_the_trigger_and_not_the_original_time() {
    let kit = Kit::with_job().await;
    let path = kit.submit("{}").await;
    let (work, token) = kit.claim("w@1").await;
    kit.report(&format!("{work}/start"), &token, "")
        .await
        .expect(200);
    let fields = r#""error": "no luck""#;
    kit.report(&format!("{work}/fail"), &token, fields)
        .await
        .expect(200);
    let task = kit.get(&path).await.expect(200);
    assert_eq!(task.text("state"), "retriable");
    assert_eq!(task.text("run_at"), "2023-11-14T22:13:20.000Z");
    assert_eq!(task.text("trigger_at"), "2023-11-14T22:13:30.000Z");
}
