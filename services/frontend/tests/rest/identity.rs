//! Ids, keys, names, and who did it.

use serde_json::json;

use crate::kit::{Kit, call};

const ID: &str = "6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e";

#[tokio::test(start_paused = true)]
async fn f_002_ids_are_chosen_or_made_and_an_equal_submit_is_one_task() {
    let kit = Kit::with_job().await;
    let first = kit.submit("{}").await;
    assert_ne!(first, kit.submit("{}").await);

    let body = format!(r#"{{"id": "{ID}", "payload": [1]}}"#);
    let reply = kit.post("/v1/jobs/mail/tasks", &body).await.expect(201);
    assert_eq!(
        (reply.text("id"), &reply.json["existed"]),
        (ID, &json!(false))
    );
    let sent = kit.queue.of("mail").len();
    let again = kit.post("/v1/jobs/mail/tasks", &body).await.expect(200);
    assert_eq!(
        (again.text("id"), &again.json["existed"]),
        (ID, &json!(true))
    );
    assert_eq!(kit.queue.of("mail").len(), sent, "no second message");

    let other = format!(r#"{{"id": "{ID}", "payload": [2]}}"#);
    let reply = kit.post("/v1/jobs/mail/tasks", &other).await;
    reply.problem(409, "conflict", "exists");
    let task = kit
        .get(&format!("/v1/jobs/mail/tasks/{ID}"))
        .await
        .expect(200);
    assert_eq!(task.json["payload"], json!([1]));

    for bad in ["7", "not-a-uuid", ""] {
        let body = format!(r#"{{"id": "{bad}"}}"#);
        let reply = kit.post("/v1/jobs/mail/tasks", &body).await;
        reply.problem(400, "invalid", "invalid_id");
        assert_eq!(reply.text("field"), "id");
    }
}

#[tokio::test(start_paused = true)]
async fn f_002_a_repeated_submit_with_a_delay_is_the_same_task() {
    let kit = Kit::with_job().await;
    for identity in [format!(r#""id": "{ID}""#), r#""key": "k1""#.to_owned()] {
        let body = format!(r#"{{{identity}, "delay_ms": 60000, "payload": 1}}"#);
        let first = kit.post("/v1/jobs/mail/tasks", &body).await.expect(201);
        tokio::time::advance(std::time::Duration::from_secs(5)).await;
        let again = kit.post("/v1/jobs/mail/tasks", &body).await.expect(200);
        assert_eq!(again.text("id"), first.text("id"));
        assert_eq!(again.text("run_at"), first.text("run_at"));
        let other = format!(r#"{{{identity}, "delay_ms": 60000, "payload": 2}}"#);
        let reply = kit.post("/v1/jobs/mail/tasks", &other).await;
        reply.problem(409, "conflict", "exists");
        let named = reply.text("detail").contains("the key 'k1' is taken");
        assert_eq!(named, identity.contains("key"), "{}", reply.body);
    }
}

#[tokio::test(start_paused = true)]
async fn f_003_guessed_numbers_are_no_ids() {
    let kit = Kit::with_job().await;
    kit.submit("{}").await;
    for guess in ["0", "1", "2", "42"] {
        let reply = kit.get(&format!("/v1/jobs/mail/tasks/{guess}")).await;
        reply.problem(400, "invalid", "invalid_id");
    }
}

#[tokio::test(start_paused = true)]
async fn f_006_names_need_not_be_unique_and_details_are_an_object() {
    let kit = Kit::with_job().await;
    let older = kit.submit(r#"{"name": "n"}"#).await;
    tokio::time::advance(std::time::Duration::from_millis(5)).await;
    let newer = kit
        .submit(r#"{"name": "n", "details": {"who": "me"}}"#)
        .await;
    kit.submit(r#"{"name": "other"}"#).await;
    let page = kit.get("/v1/jobs/mail/tasks?name=n").await.expect(200);
    let tasks = page.json["tasks"].as_array().unwrap();
    let ids: Vec<&str> = tasks
        .iter()
        .map(|task| task["id"].as_str().unwrap())
        .collect();
    assert!(newer.ends_with(ids[0]) && older.ends_with(ids[1]) && ids.len() == 2);
    assert_eq!(tasks[0]["details"], json!({"who": "me"}));
    assert_eq!(tasks[1]["details"], json!({}));
    for bad in ["[]", "7", "\"x\""] {
        let body = format!(r#"{{"details": {bad}}}"#);
        let reply = kit.post("/v1/jobs/mail/tasks", &body).await;
        reply.problem(400, "invalid", "invalid_type");
        assert_eq!(reply.text("field"), "details");
    }
}

#[tokio::test(start_paused = true)]
async fn f_012_who_submitted_and_when_is_kept_over_the_whole_life() {
    let kit = Kit::with_job().await;
    let headers = [("dueline-caller", "ann@example.org")];
    let tasks = "/v1/jobs/mail/tasks";
    let reply = call(&kit.router, "POST", tasks, &headers, "{}")
        .await
        .expect(201);
    let path = format!("{tasks}/{}", reply.text("id"));
    let check = async || {
        let task = kit.get(&path).await.expect(200);
        assert_eq!(task.text("created_by"), "ann@example.org");
        assert_eq!(task.text("created_at"), "2023-11-14T22:13:20.000Z");
        task.text("changed_at").to_owned()
    };
    let mut changes = vec![check().await];
    let (work, token) = kit.claim("w@1").await;
    for (verb, fields) in [("start", ""), ("complete", r#""result": 1"#)] {
        tokio::time::advance(std::time::Duration::from_millis(500)).await;
        let path = format!("{work}/{verb}");
        kit.report(&path, &token, fields).await.expect(200);
        changes.push(check().await);
    }
    assert!(changes.is_sorted() && changes[0] < changes[1] && changes[1] < changes[2]);

    let long = "x".repeat(257);
    for bad in ["", "  ", &long] {
        let reply = call(&kit.router, "POST", tasks, &[("dueline-caller", bad)], "{}").await;
        reply.problem(400, "invalid", "invalid_header");
    }
}

#[tokio::test(start_paused = true)]
async fn the_trace_context_of_the_submit_reaches_the_worker() {
    let kit = Kit::with_job().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (sent, kept) in [(trace, json!(trace)), ("00-nonsense", json!(null))] {
        let headers = [("traceparent", sent)];
        let path = "/v1/jobs/mail/tasks";
        call(&kit.router, "POST", path, &headers, "{}")
            .await
            .expect(201);
        let ask = r#"{"worker": "w@1", "jobs": ["mail"]}"#;
        let work = kit.post("/v1/work:next", ask).await.expect(200);
        assert_eq!(work.json["tasks"][0]["trace"], kept);
    }
}
