//! A fleet without a connection to its engines.

use std::time::Duration;

use dueline_tests_end_to_end::{RestClient, RunLog, exec_job, pause, print_note, wait_until};
use dueline_tests_engines::Engine;
use dueline_tests_fleet::{Fleet, FleetPlan, shared_machine, text};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{s, words};

/// How long both engines are unreachable.
const CUT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn f_142_without_its_engines_a_fleet_reports_it_continues_its_runs_and_recovers_by_itself() {
    let _machine = shared_machine().await;
    let (store, queue) = tokio::join!(Engine::dynoxide(), Engine::ministack());
    let plan = FleetPlan {
        executor_args: words("--concurrency 4"),
        // A message that the engine delivers to a poll of a cut connection becomes visible again after this time.
        queue_options: "visibility_timeout_s=10",
        ..FleetPlan::default()
    };
    let fleet = Fleet::start(store.url(), queue.url(), &plan).await;
    let api = fleet.api();
    let client = api.at(0);
    let log = RunLog::new(fleet.resources().folder());
    // The lease is longer than the outage, so the executor need not stop the run.
    let long = json!({"heartbeat_timeout_ms": 120_000});
    let go = fleet.resources().folder().file("go");
    let script = format!("while [ ! -e '{}' ]; do sleep 0.2; done", go.display());
    api.put_job("long", exec_job(&log, &script), long).await;
    api.put_noop("short", json!({})).await;
    let running = api.submit("long", &json!({})).await;
    wait_until("a run", s(30), async || {
        log.begun().pop().ok_or_else(String::new)
    })
    .await;
    // This task becomes due during the outage.
    let due = api.submit("short", &json!({"delay_ms": 5_000})).await;
    let connection = states(client).await;
    assert_eq!(
        connection.last().map(String::as_str),
        Some("up"),
        "{connection:?}"
    );

    let cut = Instant::now();
    for engine in [&store, &queue] {
        engine.refuse_connections(true);
        engine.cut_connections().await;
    }
    // Cached job definitions may be this old.
    pause(s(2)).await;
    while cut.elapsed() < CUT {
        let task = json!({"delay_ms": 60_000});
        assert_is_refused(client, Method::POST, "jobs/short/tasks", Some(&task)).await;
        assert_is_refused(client, Method::GET, "jobs/short/tasks", None).await;
        assert_is_refused(
            client,
            Method::GET,
            &format!("jobs/short/tasks/{due}"),
            None,
        )
        .await;
        assert_is_refused(client, Method::GET, "jobs/short/stats", None).await;
        assert_is_refused(client, Method::GET, "jobs", None).await;
        let connection = states(client).await;
        assert_eq!(
            connection.last().map(String::as_str),
            Some("down"),
            "{connection:?}"
        );
        let (ready, _) = client.page("readyz").await.expect("an answer");
        assert_eq!(ready, 200, "a restart or another frontend would not help");
    }
    assert_eq!((log.begun().len(), log.done().len()), (1, 0));
    for engine in [&store, &queue] {
        engine.refuse_connections(false);
    }

    let reconnected = Instant::now();
    let new = api.submit("short", &json!({})).await;
    let took = reconnected.elapsed();
    let task = api.finished("short", &new, s(30)).await;
    assert_eq!(task["state"], "succeeded", "{task}");
    let task = api.finished("short", &due, s(30)).await;
    assert_eq!(
        (&task["state"], &task["tries"]),
        (&json!("succeeded"), &json!(1)),
        "{task}"
    );
    print_note(&format!(
        "after {:.0} s without its engines the fleet accepted a task after {:.1} s and had run all tasks after {:.1} s",
        CUT.as_secs_f64(),
        took.as_secs_f64(),
        reconnected.elapsed().as_secs_f64()
    ));
    let connection = states(client).await;
    assert!(
        connection.ends_with(&["up".into(), "down".into(), "up".into()]),
        "{connection:?}"
    );

    // The outcome of the run that continued during the outage is stored, and it was the task's only run.
    std::fs::write(&go, "").expect("a file");
    let task = api.finished("long", &running, s(30)).await;
    assert_eq!(
        (&task["state"], &task["tries"]),
        (&json!("succeeded"), &json!(1)),
        "{task}"
    );
    assert_eq!(log.begun().len(), 1);
}

/// The call is answered with `unavailable` and a `Retry-After` header.
async fn assert_is_refused(client: &RestClient, method: Method, path: &str, body: Option<&Value>) {
    let answer = client.call(method, path, body).await.expect("an answer");
    assert_eq!(
        (
            answer.status,
            &answer.body["kind"],
            &answer.body["retryable"]
        ),
        (503, &json!("unavailable"), &json!(true)),
        "{path}: {answer:?}"
    );
    assert!(
        answer.retry_after_s.is_some_and(|wait_s| wait_s > 0),
        "{path}: {answer:?}"
    );
}

/// The latest states of the connection to the store, oldest first.
async fn states(client: &RestClient) -> Vec<String> {
    let (status, page) = client.page("healthz").await.expect("an answer");
    assert_eq!(status, 200, "{page}");
    let page: Value = serde_json::from_str(&page).expect("a document");
    let changes = page["store_connection"].as_array().cloned();
    let changes = changes.unwrap_or_default();
    changes
        .iter()
        .map(|change| text(&change["state"]))
        .collect()
}
