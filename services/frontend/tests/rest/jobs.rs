//! Job definitions.

use dueline_domain::{Job, JobName, Policy};
use dueline_frontend::RestLimits;
use dueline_ports::{JobStore as _, PutJob};
use serde_json::json;

use crate::kit::{Kit, call, routes_with};

#[tokio::test(start_paused = true)]
async fn f_015_a_definition_shows_all_its_fields_and_keeps_who_made_it() {
    let kit = Kit::new();
    let headers = [("dueline-caller", "ann")];
    let body = r#"{"info": "sends mails", "retention_ms": 2000}"#;
    let reply = call(&kit.router, "PUT", "/v1/jobs/mail", &headers, body)
        .await
        .expect(201);
    assert!(kit.queue.exists("mail"));
    assert_eq!(reply.text("id"), "mail");
    assert_eq!(reply.text("info"), "sends mails");
    assert_eq!(reply.text("status"), "active");
    assert_eq!(reply.text("created_at"), "2023-11-14T22:13:20.000Z");
    assert_eq!(reply.text("created_by"), "ann");
    assert_eq!(reply.text("queue"), "mail");
    assert_eq!(
        reply.json["handler"],
        json!({"kind": "worker", "config": {}})
    );
    assert_eq!(reply.json["retries_max"], 3);

    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let headers = [("dueline-caller", "bob")];
    let again = call(&kit.router, "PUT", "/v1/jobs/mail", &headers, "{}")
        .await
        .expect(200);
    assert_eq!(again.text("created_by"), "ann");
    assert_eq!(again.text("created_at"), reply.text("created_at"));
    assert_eq!(again.text("changed_at"), "2023-11-14T22:13:21.000Z");
    assert_eq!(
        again.json["retention_ms"],
        json!(null),
        "what is left out has its default"
    );
    let mut shown = kit.get("/v1/jobs/mail").await.expect(200).json;
    let frequency = shown.as_object_mut().unwrap().remove("frequency");
    assert_eq!(frequency, Some(json!(null)));
    assert_eq!(shown, again.json);
    let all = kit.get("/v1/jobs").await.expect(200);
    assert_eq!(all.json["jobs"], json!([shown]));
}

#[tokio::test(start_paused = true)]
async fn f_015_a_job_of_an_earlier_version_whose_name_begins_with_a_hyphen_is_replaced_and_deleted()
{
    let kit = Kit::new();
    let refused = kit.put("/v1/jobs/-old", "{}").await;
    refused.problem(400, "invalid", "invalid_name");
    assert!(!kit.queue.exists("-old"));
    let job = Job::new(JobName::parse("-old").unwrap());
    let if_absent = false;
    kit.store.put_job(PutJob { job, if_absent }).await.unwrap();
    let replaced = kit.put("/v1/jobs/-old", r#"{"info": "new"}"#).await;
    assert_eq!(replaced.expect(200).text("info"), "new");
    kit.delete("/v1/jobs/-old").await.expect(204);
    let again = kit.put("/v1/jobs/-old", "{}").await;
    again.problem(400, "invalid", "invalid_name");
}

#[tokio::test(start_paused = true)]
async fn a_job_gets_the_servers_timeouts_where_it_names_none() {
    let kit = Kit::new();
    let s = std::time::Duration::from_secs;
    let default_policy = Policy {
        enqueue_timeout: s(41),
        claim_timeout: s(42),
        heartbeat_timeout: s(43),
        heartbeat_increment: s(43),
        ..Policy::default()
    };
    let router = routes_with(
        kit.frontend.clone(),
        None,
        RestLimits::default(),
        default_policy,
    );
    let body = r#"{"claim_timeout_ms": 700}"#;
    let reply = call(&router, "PUT", "/v1/jobs/mail", &[], body)
        .await
        .expect(201);
    for (field, wanted) in [
        ("enqueue_timeout_ms", 41_000),
        ("claim_timeout_ms", 700),
        ("heartbeat_timeout_ms", 43_000),
        ("heartbeat_increment_ms", 43_000),
    ] {
        assert_eq!(reply.json[field], wanted, "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn f_015_a_wrong_definition_is_refused_with_the_field_and_changes_nothing() {
    let kit = Kit::with_job().await;
    let before = kit.get("/v1/jobs/mail").await.json;
    for (body, field) in [
        (r#"{"handler": {}}"#, "handler.kind"),
        (r#"{"handler": {"kind": "exec"}}"#, "handler.config.command"),
        (
            r#"{"handler": {"kind": "http", "config": {"url": "x"}}}"#,
            "handler.config.url",
        ),
        (r#"{"queue": ""}"#, "queue"),
        (r#"{"colour": 1}"#, "colour"),
        (r#"{"heartbeat_timeout_ms": 99}"#, "heartbeat_timeout_ms"),
        (r#"{"retries_max": -1}"#, "retries_max"),
    ] {
        let reply = kit.put("/v1/jobs/mail", body).await;
        assert_eq!(
            (reply.text("kind"), reply.text("field")),
            ("invalid", field)
        );
    }
    kit.put("/v1/jobs/a.fifo", "{}")
        .await
        .problem(400, "invalid", "invalid_name");
    assert_eq!(kit.get("/v1/jobs/mail").await.json, before);
    assert!(!kit.queue.exists("a.fifo"));
}

#[tokio::test(start_paused = true)]
async fn f_015_a_job_with_live_tasks_is_not_deleted() {
    let kit = Kit::with_job().await;
    let path = kit.submit(r#"{"delay_ms": 600000}"#).await;
    kit.delete("/v1/jobs/mail")
        .await
        .problem(409, "conflict", "in_use");
    assert!(kit.queue.exists("mail"));
    kit.post(&format!("{path}/cancel"), "").await.expect(200);
    let reply = kit.delete("/v1/jobs/mail").await.expect(204);
    assert!(reply.body.is_empty());
    assert!(!kit.queue.exists("mail"));
    kit.get(&path)
        .await
        .problem(404, "not-found", "unknown_job");
    kit.delete("/v1/jobs/mail")
        .await
        .problem(404, "not-found", "unknown_job");
}

#[tokio::test(start_paused = true)]
async fn a_pause_outlives_an_update_and_a_resume_wakes_the_consumer() {
    let kit = Kit::with_job().await;
    let paused = kit.post("/v1/jobs/mail/pause", "").await.expect(200);
    assert_eq!(paused.text("status"), "paused");
    let updated = kit
        .put("/v1/jobs/mail", r#"{"info": "x"}"#)
        .await
        .expect(200);
    assert_eq!(updated.text("status"), "paused");
    kit.due.take();
    kit.jobs_changed.notified().await;
    let resumed = kit.post("/v1/jobs/mail/resume", "").await.expect(200);
    assert_eq!(resumed.text("status"), "active");
    kit.jobs_changed.notified().await;
    assert!(kit.due.take().is_some());
    kit.post("/v1/jobs/no/pause", "")
        .await
        .problem(404, "not-found", "unknown_job");
}

#[tokio::test(start_paused = true)]
async fn stats_count_every_state() {
    let kit = Kit::with_job().await;
    for body in ["{}", "{}", r#"{"delay_ms": 9000}"#] {
        kit.submit(body).await;
    }
    kit.claim("w@1").await;
    let stats = kit.get("/v1/jobs/mail/stats").await.expect(200);
    assert_eq!(stats.json["total"], 3);
    let by_state = &stats.json["by_state"];
    assert_eq!(
        (
            &by_state["new"],
            &by_state["enqueued"],
            &by_state["claimed"],
            &by_state["failed"]
        ),
        (&json!(1), &json!(1), &json!(1), &json!(0))
    );
    let by_status = &stats.json["by_status"];
    assert_eq!(
        (&by_status["pending"], &by_status["running"]),
        (&json!(2), &json!(1))
    );
    kit.get("/v1/jobs/no/stats")
        .await
        .problem(404, "not-found", "unknown_job");
}
