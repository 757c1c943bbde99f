//! The `http` handler against a server on this machine, in real time.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, Method, Response, StatusCode},
    routing::{any, get},
};
use bytes::Bytes;
use dueline_api::Assignment;
use dueline_domain::{Outcome, RetryClass};
use dueline_executor::{BuiltIn, HttpSettings, Registry};
use dueline_runtime::TaskGroup;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fake::{built_in, error_of, ms, result, result_of};
use crate::rig::Rig;

#[derive(Clone, Default)]
struct RecordedCalls(Arc<Mutex<Vec<(Method, HeaderMap, Bytes)>>>);

async fn server() -> (SocketAddr, RecordedCalls, TaskGroup) {
    let calls = RecordedCalls::default();
    let echo = |State(calls): State<RecordedCalls>,
                method: Method,
                headers: HeaderMap,
                body: Bytes| async move {
        let call = (method, headers, body.clone());
        calls.0.lock().unwrap().push(call);
        body
    };
    let status = |Path(code): Path<u16>, headers: HeaderMap| async move {
        let mut response = Response::builder().status(code);
        if let Some(after) = headers.get("x-after") {
            response = response.header("retry-after", after);
        }
        if (300..400).contains(&code) {
            response = response.header("location", "/echo");
        }
        let body = if code == 204 || code == 304 {
            ""
        } else {
            "the body"
        };
        response.body(Body::from(body)).unwrap()
    };
    let endless = || async {
        let chunks =
            std::iter::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 8_192])));
        Body::from_stream(futures_util::stream::iter(chunks))
    };
    let router = Router::new()
        .route("/echo", any(echo))
        .route("/status/{code}", any(status))
        .route("/endless", any(endless))
        .route("/never", get(std::future::pending::<StatusCode>))
        .with_state(calls.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = TaskGroup::new();
    tasks.spawn("server", async move { axum::serve(listener, router).await });
    (address, calls, tasks)
}

/// A server whose response is shorter than its content length.
async fn truncating_server() -> (SocketAddr, TaskGroup) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = TaskGroup::new();
    tasks.spawn("server", async move {
        let (mut socket, _) = listener.accept().await?;
        let _ = socket.read(&mut [0; 4_096]).await?;
        let part = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegun";
        socket.write_all(part.as_bytes()).await?;
        socket.shutdown().await
    });
    (address, tasks)
}

/// A server that answers the first request of each connection, and closes the connection when it has read a second one.
/// Counts its requests.
async fn closing_server() -> (SocketAddr, Arc<Mutex<usize>>, TaskGroup) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (requests, tasks) = (Arc::new(Mutex::new(0)), TaskGroup::new());
    let counted = requests.clone();
    tasks.spawn("server", async move {
        loop {
            let (mut socket, _) = listener.accept().await?;
            for is_answered in [true, false] {
                if socket.read(&mut [0; 4_096]).await? == 0 {
                    break;
                }
                *counted.lock().unwrap() += 1;
                if is_answered {
                    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    socket.write_all(answer.as_bytes()).await?;
                }
            }
        }
        #[expect(unreachable_code, reason = "names the type of the error")]
        Ok::<_, std::io::Error>(())
    });
    (address, requests, tasks)
}

#[tokio::test]
async fn a_request_over_a_connection_that_closes_just_then_is_sent_again_and_uses_no_try() {
    let (address, requests, _server) = closing_server().await;
    let http = BuiltIn {
        http: Some(HttpSettings {
            allow_private: true,
        }),
        ..BuiltIn::default()
    };
    let rig = Rig::start(Registry::built_in(http));
    let config = format!(r#"{{"url": "http://{address}/"}}"#);
    for n in 1..=3 {
        // One after the other, so that the second call finds the connection of the first.
        rig.controller.push([built_in("http", &config, "payload")]);
        let outcomes = rig.controller.outcomes(n).await;
        assert_eq!(result_of(&outcomes[n - 1].1), b"ok", "call {n}");
    }
    rig.drain().await;
    let requests = *requests.lock().unwrap();
    assert!((4..=5).contains(&requests), "{requests} requests");
}

#[tokio::test]
async fn a_server_that_never_answers_is_asked_twice_in_a_try() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(Mutex::new(0));
    let (counted, tasks) = (accepted.clone(), TaskGroup::new());
    tasks.spawn_infallible("server", async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            *counted.lock().unwrap() += 1;
            let _ = socket.read(&mut [0; 4_096]).await;
        }
    });
    let outcome = call(address, "/", "").await;
    assert!(matches!(outcome, Outcome::Retriable { .. }), "{outcome:?}");
    assert_eq!(*accepted.lock().unwrap(), 2);
}

async fn outcome_of(allow_private: bool, task: Assignment) -> Outcome {
    let http = BuiltIn {
        http: Some(HttpSettings { allow_private }),
        ..BuiltIn::default()
    };
    let rig = Rig::start(Registry::built_in(http));
    rig.controller.push([task]);
    let outcome = rig.controller.outcome().await;
    rig.drain().await;
    outcome
}

async fn call(address: SocketAddr, path: &str, more: &str) -> Outcome {
    let config = format!(r#"{{"url": "http://{address}{path}"{more}}}"#);
    outcome_of(true, built_in("http", &config, "payload")).await
}

#[tokio::test]
async fn a_call_carries_the_payload_and_headers_that_describe_the_task() {
    let (address, calls, _server) = server().await;
    let more = r#""headers": {"Authorization": "Bearer x"}"#;
    let config = format!(r#"{{"url": "http://{address}/echo", {more}}}"#);
    let task = Assignment {
        attempt: 3,
        content_type: Some(Arc::from("application/json")),
        ..built_in("http", &config, r#"{"a":1}"#)
    };
    let (id, token) = (task.id.to_string(), task.token.to_string());
    let outcome = outcome_of(true, task).await;
    assert_eq!(result_of(&outcome), br#"{"a":1}"#);
    let (method, headers, _) = calls.0.lock().unwrap().remove(0);
    assert_eq!(method, Method::POST);
    for (name, value) in [
        ("dueline-job", "job"),
        ("dueline-task-id", &id),
        ("dueline-attempt", "3"),
        ("dueline-token", &token),
        ("idempotency-key", &id),
        ("content-type", "application/json"),
        ("authorization", "Bearer x"),
    ] {
        assert_eq!(headers.get(name).unwrap(), value, "{name}");
    }
}

#[tokio::test]
async fn f_095_a_call_may_carry_what_predecessors_have_returned() {
    let (address, calls, _server) = server().await;
    let config = format!(r#"{{"url": "http://{address}/echo", "body": "results"}}"#);
    let task = Assignment {
        content_type: Some(Arc::from("text/plain")),
        results: vec![result(1, Some(b"[3]")), result(2, None)],
        ..built_in("http", &config, "x")
    };
    let results: Vec<_> = task.results.iter().map(|one| one.task.id).collect();
    outcome_of(true, task).await;
    let (_, headers, body) = calls.0.lock().unwrap().remove(0);
    assert_eq!(headers.get("content-type").unwrap(), "application/json");
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let [first, second] = [results[0].to_string(), results[1].to_string()];
    let end = "succeeded";
    let expected = serde_json::json!({
        "payload_base64": "eA==",
        "results": [
            {"job": "job", "id": first, "end": end, "result_bytes": 3, "result": [3]},
            {"job": "job", "id": second, "end": end, "result_bytes": 70_000},
        ],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_get_has_no_body() {
    let (address, calls, _server) = server().await;
    let outcome = call(address, "/echo", r#", "method": "GET""#).await;
    assert_eq!(result_of(&outcome), b"");
    let (method, headers, body) = calls.0.lock().unwrap().remove(0);
    assert_eq!((method, body.len()), (Method::GET, 0));
    assert!(!headers.contains_key("content-type"));
}

#[tokio::test]
async fn a_status_becomes_an_outcome() {
    let (address, calls, _server) = server().await;
    let standard = Some((RetryClass::Standard, None));
    let limited = |seconds| Some((RetryClass::RateLimited, Some(Duration::from_secs(seconds))));
    for (code, after, expected) in [
        (301, None, None),
        (400, None, None),
        (404, None, None),
        (408, None, standard),
        (425, None, standard),
        (429, None, Some((RetryClass::RateLimited, None))),
        (429, Some("7"), limited(7)),
        (500, Some("7"), standard),
        (502, None, standard),
        (503, None, Some((RetryClass::Slow, None))),
        (503, Some("Thu, 01 Jan 1970 00:00:01 GMT"), limited(0)),
    ] {
        let more = after.map(|after| format!(r#", "headers": {{"X-After": "{after}"}}"#));
        let path = format!("/status/{code}");
        let outcome = call(address, &path, &more.unwrap_or_default()).await;
        let actual = match &outcome {
            Outcome::Retriable { class, delay, .. } => Some((*class, *delay)),
            _ => None,
        };
        assert_eq!(actual, expected, "{code} {after:?}");
        let (is_fatal, error) = error_of(&outcome);
        assert_eq!(is_fatal, expected.is_none(), "{code}");
        assert!(error.starts_with(&format!("status {code}")), "{error}");
        assert_eq!(error.contains("redirects are not followed"), code == 301);
        assert!(error.ends_with("the body"), "{error}");
    }
    let calls = calls.0.lock().unwrap().len();
    assert_eq!(calls, 0, "a redirect was followed");
    let outcome = call(address, "/status/404", r#", "success_statuses": [404]"#).await;
    assert_eq!(result_of(&outcome), b"the body");
    assert_eq!(result_of(&call(address, "/status/204", "").await), b"");
}

#[tokio::test]
async fn a_body_is_read_no_further_than_the_result_limit() {
    let (address, _, _server) = server().await;
    let outcome = call(address, "/endless", r#", "result_max_bytes": 10000"#).await;
    let result = result_of(&outcome);
    assert_eq!(result.len(), 10_000);
    assert!(result.ends_with(b"x\n[cut]"));
}

#[tokio::test]
async fn connection_failures_and_timeouts_are_retriable() {
    let (address, _, _server) = server().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let (truncating, _truncating) = truncating_server().await;
    for (outcome, what) in [
        (call(closed, "/", "").await, "failed to connect"),
        (
            call(truncating, "/", "").await,
            "failed to read the response",
        ),
        (
            call(address, "/never", r#", "method": "GET", "timeout_ms": 50"#).await,
            "timed out",
        ),
    ] {
        let (is_fatal, error) = error_of(&outcome);
        assert!(!is_fatal && error.contains(what), "{what}: {error}");
        assert!(!error.contains("http://"), "{error} contains the URL");
    }
}

#[tokio::test]
async fn calls_to_private_addresses_and_names_are_fatal_failures() {
    let (address, calls, _server) = server().await;
    let port = address.port();
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "[::ffff:127.0.0.1]",
        "localhost",
    ] {
        let config = format!(r#"{{"url": "http://{host}:{port}/echo"}}"#);
        let outcome = outcome_of(false, built_in("http", &config, "")).await;
        let (is_fatal, error) = error_of(&outcome);
        assert!(is_fatal, "{host}: {error}");
        assert!(error.contains("target_not_allowed"), "{host}: {error}");
    }
    assert!(calls.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_call_in_flight_is_cancelled_when_the_run_must_stop() {
    let (address, _, _server) = server().await;
    let http = BuiltIn {
        http: Some(HttpSettings {
            allow_private: true,
        }),
        ..BuiltIn::default()
    };
    let rig = Rig::with(
        |config| config.kill_grace = Duration::from_secs(60),
        Registry::built_in(http),
    );
    let config = format!(r#"{{"url": "http://{address}/never", "method": "GET"}}"#);
    rig.controller.push([built_in("http", &config, "")]);
    rig.controller
        .reported(1, |it| *it == dueline_api::Action::Start)
        .await;
    let begun = tokio::time::Instant::now();
    let controller = rig.controller.clone();
    rig.stop().await;
    assert!(begun.elapsed() < ms(20_000));
    assert_eq!(
        controller.actions().last(),
        Some(&dueline_api::Action::Abandon)
    );
}
