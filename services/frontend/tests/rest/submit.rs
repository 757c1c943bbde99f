//! Submits.

use dueline_domain::StateKind;
use serde_json::json;

use crate::kit::{Kit, call};

#[tokio::test(start_paused = true)]
async fn f_001_a_submit_without_a_time_is_due_at_once_and_answers_its_id() {
    let kit = Kit::with_job().await;
    let reply = kit.post("/v1/jobs/mail/tasks", "{}").await.expect(201);
    let id = reply.text("id").to_owned();
    assert_eq!(id.len(), 36);
    assert_eq!(reply.text("state"), "enqueued");
    assert_eq!(reply.text("run_at"), "2023-11-14T22:13:20.000Z");
    let path = format!("/v1/jobs/mail/tasks/{id}");
    assert_eq!(reply.header("location"), Some(&*path));
    let sent = kit.queue.of("mail");
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].id.to_string(), id);

    let task = kit.get(&path).await.expect(200);
    assert_eq!(task.text("id"), id);
    assert_eq!(task.text("run_at"), "2023-11-14T22:13:20.000Z");
}

#[tokio::test(start_paused = true)]
async fn f_001_broken_json_and_unknown_jobs_store_nothing() {
    let kit = Kit::with_job().await;
    let reply = kit.post("/v1/jobs/mail/tasks", "{\"name\": ").await;
    reply.problem(400, "invalid", "malformed_json");
    assert!(reply.text("detail").contains("line 1 column"));
    let reply = kit.post("/v1/jobs/unknown/tasks", "{}").await;
    reply.problem(404, "not-found", "unknown_job");
    assert!(kit.store.snapshot().is_empty());
    assert!(kit.queue.of("mail").is_empty() && kit.queue.of("unknown").is_empty());
}

#[tokio::test(start_paused = true)]
async fn f_004_an_empty_job_is_refused() {
    let kit = Kit::with_job().await;
    for path in ["/v1/jobs//tasks", "/v1/jobs/%20/tasks", "/v1/jobs/"] {
        kit.post(path, "{}").await.problem(400, "invalid", "no_job");
    }
    let reply = kit.post("/v1/jobs/a.fifo/tasks", "{}").await;
    reply.problem(400, "invalid", "invalid_name");
    assert!(kit.store.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn f_004_tasks_go_to_the_queue_of_their_own_job() {
    let kit = Kit::with_job().await;
    kit.put("/v1/jobs/report", "{}").await.expect(201);
    kit.submit("{}").await;
    kit.post("/v1/jobs/report/tasks", "{}").await.expect(201);
    kit.post("/v1/jobs/report/tasks", "{}").await.expect(201);
    assert_eq!(
        (kit.queue.of("mail").len(), kit.queue.of("report").len()),
        (1, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn f_005_a_payload_comes_back_byte_for_byte() {
    let kit = Kit::with_job().await;
    let exact = r#"{"b": 1.0,  "a": "Grüße \u2603", "n": 12345678901234567890123 }"#;
    let path = kit.submit(&format!(r#"{{"payload": {exact} }}"#)).await;
    let task = kit.get(&path).await.expect(200);
    assert!(task.body.contains(exact), "{}", task.body);
    assert_eq!(task.text("content_type"), "application/json");

    for (body, base64, content_type) in [
        (
            r#"{"payload_base64": "AP+A"}"#,
            "AP+A",
            "application/octet-stream",
        ),
        (
            r#"{"payload_base64": "AA=="}"#,
            "AA==",
            "application/octet-stream",
        ),
        (
            r#"{"payload_text": "hi"}"#,
            "aGk=",
            "text/plain; charset=utf-8",
        ),
        (
            r#"{"payload": 7, "content_type": "text/x"}"#,
            "Nw==",
            "text/x",
        ),
        ("{}", "", "application/octet-stream"),
    ] {
        let path = kit.submit(body).await;
        let task = kit.get(&path).await.expect(200);
        assert_eq!(task.text("payload_base64"), base64);
        assert_eq!(task.text("content_type"), content_type);
        assert!(task.json.get("payload").is_none());
    }
    let path = kit.submit(r#"{"payload": null}"#).await;
    let task = kit.get(&path).await.expect(200);
    assert_eq!(task.json.get("payload"), Some(&json!(null)));
}

#[tokio::test(start_paused = true)]
async fn f_005_a_payload_over_the_limit_is_refused_with_the_limit() {
    let kit = Kit::with_job().await;
    let body = |len: usize| format!(r#"{{"payload_text": "{}"}}"#, "x".repeat(len));
    kit.submit(&body(256 * 1024)).await;
    let reply = kit.post("/v1/jobs/mail/tasks", &body(256 * 1024 + 1)).await;
    reply.problem(413, "too-large", "payload_too_large");
    assert!(reply.text("detail").contains("262144"), "{}", reply.body);
    let reply = kit.post("/v1/jobs/mail/tasks", &body(1024 * 1024)).await;
    reply.problem(413, "too-large", "body_too_large");
    assert_eq!(kit.store.snapshot().len(), 1);
    assert_eq!(kit.queue.of("mail").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f_007_a_missing_or_null_task_is_refused_before_anything_is_written() {
    let kit = Kit::with_job().await;
    for body in ["", "null", " null ", "  "] {
        let reply = kit.post("/v1/jobs/mail/tasks", body).await;
        reply.problem(400, "invalid", "no_task");
        let reply = kit.post("/v1/jobs/mail/tasks:batch", body).await;
        reply.problem(400, "invalid", "no_task");
        let reply = kit.put("/v1/jobs/other", body).await;
        reply.problem(400, "invalid", "no_job");
    }
    let reply = kit.post("/v1/jobs/mail/tasks", "[]").await;
    reply.problem(400, "invalid", "invalid_type");
    assert!(kit.store.snapshot().is_empty() && kit.queue.of("mail").is_empty());
}

#[tokio::test(start_paused = true)]
async fn f_008_a_blank_or_foreign_queue_is_refused_and_the_own_one_is_shown() {
    let kit = Kit::with_job().await;
    for (queue, reason) in [
        ("", "no_queue"),
        ("  ", "no_queue"),
        ("other", "unknown_queue"),
    ] {
        let body = format!(r#"{{"queue": "{queue}"}}"#);
        let reply = kit.post("/v1/jobs/mail/tasks", &body).await;
        reply.problem(400, "invalid", reason);
        assert_eq!(reply.text("field"), "queue");
    }
    for body in ["{}", r#"{"queue": "mail"}"#] {
        let path = kit.submit(body).await;
        assert_eq!(kit.get(&path).await.text("queue"), "mail");
    }
}

#[tokio::test(start_paused = true)]
async fn f_034_a_weight_of_zero_is_refused() {
    let kit = Kit::with_job().await;
    for weight in ["0", "-1", "10001"] {
        let body = format!(r#"{{"weight": {weight}}}"#);
        let reply = kit.post("/v1/jobs/mail/tasks", &body).await;
        reply.problem(400, "invalid", "invalid_weight");
        assert_eq!(reply.text("field"), "weight");
    }
    let path = kit.submit(r#"{"weight": 3}"#).await;
    assert_eq!(kit.get(&path).await.json["weight"], 3);
}

#[tokio::test(start_paused = true)]
async fn f_023_five_named_levels_normal_by_default() {
    let kit = Kit::with_job().await;
    for (body, number, name) in [
        ("{}", 0, json!("normal")),
        (r#"{"priority": "VERY-high"}"#, 100, json!("very_high")),
        (r#"{"priority": "low"}"#, -50, json!("low")),
        (r#"{"priority": 7}"#, 7, json!(null)),
    ] {
        let path = kit.submit(body).await;
        let task = kit.get(&path).await.expect(200);
        assert_eq!(task.json["priority"], number);
        assert_eq!(task.json["priority_name"], name);
    }
    let sent: Vec<i16> = kit
        .queue
        .of("mail")
        .iter()
        .map(|m| m.priority.get())
        .collect();
    assert_eq!(sent, [0, 100, -50, 7]);
    let reply = kit
        .post("/v1/jobs/mail/tasks", r#"{"priority": "urgent"}"#)
        .await;
    reply.problem(400, "invalid", "invalid_priority");
    for name in ["very_low", "low", "normal", "high", "very_high"] {
        assert!(reply.text("detail").contains(name), "{}", reply.body);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_a_result_per_item_as_an_array_and_as_lines() {
    let kit = Kit::with_job().await;
    let id = "6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e";
    let items = [
        format!(r#"{{"id": "{id}", "name": "a"}}"#),
        r#"{"weight": 0}"#.to_owned(),
        "null".to_owned(),
        r#"{"run_at": "2030-01-01T00:00:00Z"}"#.to_owned(),
        "7".to_owned(),
    ];
    let array = format!("[{}]", items.join(","));
    let lines = items.join("\n") + "\n\n";
    for (round, (body, media)) in [(array, "application/json"), (lines, "application/x-ndjson")]
        .iter()
        .enumerate()
    {
        let headers = [("content-type", *media)];
        let path = "/v1/jobs/mail/tasks:batch";
        let reply = call(&kit.router, "POST", path, &headers, body)
            .await
            .expect(200);
        let results = reply.json["results"].as_array().unwrap();
        assert_eq!(results.len(), 5);
        for (index, result) in results.iter().enumerate() {
            assert_eq!(result["index"], index);
            assert_ne!(result.get("id").is_some(), result.get("error").is_some());
        }
        assert_eq!(results[0]["id"], id);
        assert_eq!(results[0]["existed"], round == 1);
        assert_eq!(results[1]["error"]["reason"], "invalid_weight");
        assert_eq!(results[2]["error"]["reason"], "no_task");
        assert_eq!(results[3]["state"], "new");
        assert_eq!(results[4]["error"]["reason"], "invalid_type");
    }
    assert_eq!(kit.store.snapshot().len(), 3);
    assert_eq!(kit.queue.of("mail").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_holds_ten_thousand_tasks_and_no_more() {
    let kit = Kit::with_job().await;
    let headers = [("content-type", "application/x-ndjson")];
    let path = "/v1/jobs/mail/tasks:batch";
    let send = |count: usize| {
        let body = "{}\n".repeat(count);
        let (router, headers) = (kit.router.clone(), headers);
        async move { call(&router, "POST", path, &headers, &body).await }
    };
    let reply = send(10_001).await;
    reply.problem(413, "too-large", "batch_too_large");
    assert!(kit.store.snapshot().is_empty());
    let reply = send(10_000).await.expect(200);
    assert_eq!(reply.json["results"].as_array().unwrap().len(), 10_000);
    assert_eq!(kit.queue.of("mail").len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_paused_job_stores_its_tasks_and_sends_none() {
    let kit = Kit::with_job().await;
    kit.post("/v1/jobs/mail/pause", "").await.expect(200);
    let path = kit.submit("{}").await;
    assert_eq!(kit.get(&path).await.text("state"), "new");
    assert!(kit.queue.of("mail").is_empty());
    assert_eq!(kit.store.snapshot()[0].kind(), StateKind::New);
}
