//! Every failure has a kind, a reason and an answer to "may it work later?".

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use axum::Router;
use dueline_api::{ApiError, Call, Callable, Operation, operation::Submit};
use dueline_domain::{JobName, NewTask, TaskId};
use dueline_frontend::RestLimits;
use dueline_ports::StoreError;
use tokio::time::Instant;

use crate::kit::{Kit, call, routes};

/// A frontend whose store is in trouble.
pub(crate) struct Broken(pub(crate) Trouble);

pub(crate) enum Trouble {
    Store(Mutex<StoreError>),
    Stalled,
    Panics,
}

impl Broken {
    fn store(error: StoreError) -> Router {
        let broken = Self(Trouble::Store(Mutex::new(error)));
        routes(Arc::new(broken), None, RestLimits::default())
    }

    async fn trouble<T>(&self) -> Result<T, ApiError> {
        match &self.0 {
            Trouble::Store(error) => Err(error.lock().unwrap().clone().into()),
            Trouble::Stalled => std::future::pending().await,
            Trouble::Panics => panic!("a bug"),
        }
    }
}

#[async_trait]
impl<O: Operation> Callable<O> for Broken {
    async fn call(&self, _: &Call, _: O) -> Result<O::Output, ApiError> {
        self.trouble().await
    }
}

#[tokio::test(start_paused = true)]
async fn f_020_every_failure_of_a_client_is_typed_and_not_worth_a_retry() {
    let kit = Kit::with_job().await;
    let path = kit.submit(r#"{"delay_ms": 600000}"#).await;
    let id = path.rsplit('/').next().unwrap();
    let gone = "6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e";
    let tasks = "/v1/jobs/mail/tasks";
    let deep = format!(r#"{{"payload": {}{}}}"#, "[".repeat(200), "]".repeat(200));
    let own = |text: &str| text.to_owned();
    let table: Vec<(&str, String, String, u16, &str, &str)> = vec![
        (
            "POST",
            own(tasks),
            own("{"),
            400,
            "invalid",
            "malformed_json",
        ),
        ("POST", own(tasks), own("null"), 400, "invalid", "no_task"),
        (
            "POST",
            own(tasks),
            own(r#"{"x": 1}"#),
            400,
            "invalid",
            "unknown_field",
        ),
        (
            "POST",
            own(tasks),
            own(r#"{"name": 1}"#),
            400,
            "invalid",
            "invalid_type",
        ),
        (
            "POST",
            own(tasks),
            own(r#"{"name": ""}"#),
            400,
            "invalid",
            "blank",
        ),
        (
            "POST",
            own(tasks),
            own(r#"{"weight": 0}"#),
            400,
            "invalid",
            "invalid_weight",
        ),
        (
            "POST",
            own(tasks),
            own(r#"{"priority": "x"}"#),
            400,
            "invalid",
            "invalid_priority",
        ),
        (
            "POST",
            own(tasks),
            own(r#"{"run_at": "x"}"#),
            400,
            "invalid",
            "invalid_value",
        ),
        (
            "POST",
            own(tasks),
            own(r#"{"payload_base64": "!"}"#),
            400,
            "invalid",
            "invalid_base64",
        ),
        ("POST", own(tasks), deep, 400, "invalid", "too_deep"),
        (
            "POST",
            own(tasks),
            "x".repeat(2 << 20),
            413,
            "too-large",
            "body_too_large",
        ),
        (
            "POST",
            format!("{tasks}?wait=x"),
            own("{}"),
            400,
            "invalid",
            "invalid_value",
        ),
        (
            "POST",
            format!("{tasks}?x=1"),
            own("{}"),
            400,
            "invalid",
            "unknown_field",
        ),
        (
            "POST",
            own("/v1/jobs/no/tasks"),
            own("{}"),
            404,
            "not-found",
            "unknown_job",
        ),
        (
            "POST",
            own("/v1/jobs/a%20b/tasks"),
            own("{}"),
            400,
            "invalid",
            "invalid_name",
        ),
        (
            "POST",
            own("/v1/jobs/%ff/tasks"),
            own("{}"),
            400,
            "invalid",
            "invalid_path",
        ),
        (
            "GET",
            format!("{tasks}/{gone}"),
            own(""),
            404,
            "not-found",
            "unknown_task",
        ),
        (
            "GET",
            format!("{tasks}/17"),
            own(""),
            400,
            "invalid",
            "invalid_id",
        ),
        (
            "GET",
            own("/v1/nothing"),
            own(""),
            404,
            "not-found",
            "unknown_route",
        ),
        ("GET", own("/"), own(""), 404, "not-found", "unknown_route"),
        (
            "DELETE",
            own(tasks),
            own(""),
            405,
            "invalid",
            "method_not_allowed",
        ),
        (
            "PUT",
            format!("{tasks}/{id}"),
            own("{}"),
            405,
            "invalid",
            "method_not_allowed",
        ),
        (
            "DELETE",
            own("/v1/jobs/mail"),
            own(""),
            409,
            "conflict",
            "in_use",
        ),
        (
            "POST",
            format!("{tasks}/{id}/redrive"),
            own(""),
            409,
            "conflict",
            "not_finished",
        ),
        (
            "PATCH",
            format!("{tasks}/{id}"),
            own("{}"),
            400,
            "invalid",
            "no_change",
        ),
        (
            "PUT",
            own("/v1/jobs/x"),
            own("null"),
            400,
            "invalid",
            "no_job",
        ),
        (
            "PUT",
            own("/v1/jobs/x"),
            own(r#"{"handler": {"kind": "y"}}"#),
            400,
            "invalid",
            "unknown_handler",
        ),
        (
            "POST",
            own("/v1/work:next"),
            own("{}"),
            400,
            "invalid",
            "missing_field",
        ),
        (
            "DELETE",
            own("/v1/workers/%20"),
            own(""),
            400,
            "invalid",
            "invalid_id",
        ),
    ];
    assert!(table.len() >= 20);
    for (method, path, body, status, kind, reason) in table {
        let reply = call(&kit.router, method, &path, &[], &body).await;
        reply.problem(status, kind, reason);
        assert_eq!(reply.json["retryable"], false, "{method} {path}");
        assert!(reply.header("retry-after").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn f_020_trouble_of_the_store_is_typed_and_worth_a_retry_unless_it_is_corrupt() {
    let unavailable = |outcome_unknown| StoreError::Unavailable {
        message: "no disk".into(),
        outcome_unknown,
    };
    for (error, status, kind, reason, retryable, after) in [
        (
            unavailable(false),
            503,
            "unavailable",
            "store_unavailable",
            true,
            Some("1"),
        ),
        (
            unavailable(true),
            504,
            "deadline",
            "store_unavailable",
            true,
            None,
        ),
        (
            StoreError::Throttled,
            503,
            "unavailable",
            "throttled",
            true,
            Some("1"),
        ),
        (
            StoreError::Full("disk".into()),
            503,
            "unavailable",
            "store_full",
            true,
            Some("10"),
        ),
        (
            StoreError::Corrupt("row 7".into()),
            500,
            "internal",
            "store_corrupt",
            false,
            None,
        ),
        (
            StoreError::Invalid("cursor".into()),
            400,
            "invalid",
            "invalid",
            false,
            None,
        ),
    ] {
        let router = Broken::store(error);
        let task = "/v1/jobs/mail/tasks/6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e";
        for (method, path, body) in [
            ("POST", "/v1/jobs/mail/tasks", "{}"),
            ("GET", task, ""),
            ("PATCH", task, r#"{"weight": 1}"#),
            ("PUT", "/v1/jobs/mail", "{}"),
            ("GET", "/v1/workers", ""),
        ] {
            let reply = call(&router, method, path, &[], body).await;
            reply.problem(status, kind, reason);
            assert_eq!(reply.json["retryable"], retryable, "{method} {path}");
            assert_eq!(reply.header("retry-after"), after);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f_019_a_deadline_bounds_the_handling_and_the_call_may_be_repeated() {
    let stalled = Arc::new(Broken(Trouble::Stalled));
    let router = routes(stalled, None, RestLimits::default());
    let before = Instant::now();
    let headers = [("dueline-timeout-ms", "200")];
    let reply = call(&router, "POST", "/v1/jobs/mail/tasks", &headers, "{}").await;
    reply.problem(504, "deadline", "deadline");
    assert_eq!(reply.json["retryable"], true);
    assert_eq!(before.elapsed(), Duration::from_millis(200));
    // Without a deadline of its own a call ends all the same.
    let reply = call(&router, "GET", "/v1/jobs", &[], "").await;
    reply.problem(504, "deadline", "deadline");
    for bad in ["0", "-1", "soon", ""] {
        let headers = [("dueline-timeout-ms", bad)];
        let reply = call(&router, "GET", "/v1/jobs", &headers, "").await;
        reply.problem(400, "invalid", "invalid_header");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_answered_and_the_next_call_works() {
    let router = routes(
        Arc::new(Broken(Trouble::Panics)),
        None,
        RestLimits::default(),
    );
    for _ in 0..2 {
        let reply = call(&router, "GET", "/v1/jobs", &[], "").await;
        reply.problem(500, "internal", "panic");
    }
    call(&router, "GET", "/healthz", &[], "").await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn too_many_calls_at_once_are_turned_away_and_health_is_not() {
    let limits = RestLimits {
        in_flight_max: 2,
        waiting_max: 1,
        ..RestLimits::default()
    };
    let router = routes(Arc::new(Broken(Trouble::Stalled)), None, limits);
    let headers = [("dueline-timeout-ms", "1000")];
    let stalled = || call(&router, "GET", "/v1/jobs", &headers, "");
    let task = "/v1/jobs/j/tasks/6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e?wait=1s";
    let waiting = || call(&router, "GET", task, &headers, "");
    let (one, two, three, wait, no_wait, health) = tokio::join!(
        stalled(),
        stalled(),
        stalled(),
        waiting(),
        waiting(),
        call(&router, "GET", "/healthz", &[], "")
    );
    for reply in [one, two, wait] {
        reply.problem(504, "deadline", "deadline");
    }
    for reply in [three, no_wait] {
        reply.problem(503, "unavailable", "overloaded");
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_eq!(reply.json["retryable"], true);
    }
    health.expect(200);
    stalled().await.problem(504, "deadline", "deadline");
}

#[tokio::test(start_paused = true)]
async fn only_json_is_taken_for_json() {
    let kit = Kit::with_job().await;
    let tasks = "/v1/jobs/mail/tasks";
    for (media, status) in [
        ("application/json; charset=utf-8", 201),
        ("APPLICATION/JSON", 201),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("application/x-ndjson", 415),
    ] {
        let reply = call(&kit.router, "POST", tasks, &[("content-type", media)], "{}").await;
        assert_eq!(reply.status, status, "{media}");
        if status == 415 {
            reply.problem(415, "invalid", "unsupported_media_type");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_id_of_a_call_comes_back_with_its_failure() {
    let kit = Kit::with_job().await;
    let headers = [("x-request-id", "call-7")];
    let reply = call(&kit.router, "GET", "/v1/jobs/no", &headers, "").await;
    assert_eq!(reply.text("request_id"), "call-7");
    let reply = call(&kit.router, "GET", "/v1/jobs/no", &[], "").await;
    assert_eq!(reply.text("request_id").len(), 16);
}

#[tokio::test(start_paused = true)]
async fn health_tells_the_durability_and_metrics_are_text() {
    let kit = Kit::new();
    for path in ["/healthz", "/readyz"] {
        let reply = kit.get(path).await.expect(200);
        assert_eq!(reply.text("durability"), "memory only");
    }
    let metrics = kit.get("/metrics").await.expect(200);
    assert_eq!(metrics.body, "dueline_up 1\n");
    assert!(
        metrics
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
}

#[tokio::test(start_paused = true)]
async fn a_submit_whose_client_gave_up_is_sent_all_the_same() {
    let kit = Kit::with_job().await;
    let submit = NewTask::now(
        TaskId::from_bytes([3; 16]),
        JobName::parse("mail").unwrap(),
        Default::default(),
    );
    // Dropped at its first pause, which is between the write and the message.
    let call = Call::default();
    tokio::select! {
        biased;
        _ = kit.frontend.call(&call, Submit { tasks: vec![submit] }) => panic!("there was no pause"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(
        (kit.store.snapshot().len(), kit.queue.of("mail").len()),
        (1, 0)
    );
    kit.frontend.drained().await;
    assert_eq!(kit.queue.of("mail").len(), 1);
}
