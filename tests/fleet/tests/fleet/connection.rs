//! The connection to the engines breaks.

use std::time::Duration;

use dueline_tests_end_to_end::{Client, RunLog, exec_job, pause, say, wait_until};
use dueline_tests_engines::Engine;
use dueline_tests_fleet::{Fleet, Plan, text, with_others};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{s, words};

/// How long nobody reaches either engine.
const CUT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn f_142_without_its_engines_a_fleet_says_so_goes_on_and_recovers_by_itself() {
    let _turn = with_others().await;
    let (store, queue) = tokio::join!(Engine::dynoxide(), Engine::ministack());
    let plan = Plan {
        executor_args: words("--concurrency 4"),
        ..Plan::default()
    };
    let fleet = Fleet::start(store.url(), queue.url(), &plan).await;
    let api = fleet.api();
    let client = api.at(0);
    let log = RunLog::new(fleet.site().place());
    // Its lease is longer than the outage: whoever runs it need not give up.
    let long = json!({"heartbeat_timeout_ms": 120_000});
    let go = fleet.site().place().file("go");
    let script = format!("while [ ! -e '{}' ]; do sleep 0.2; done", go.display());
    api.put_job("long", exec_job(&log, &script), long).await;
    api.put_noop("short", json!({})).await;
    let running = api.submit("long", &json!({})).await;
    wait_until("a run", s(30), async || {
        log.begun().pop().ok_or_else(String::new)
    })
    .await;
    // It comes due while nobody can see it.
    let due = api.submit("short", &json!({"delay_ms": 5_000})).await;
    let known = states(client).await;
    assert_eq!(known.last().map(String::as_str), Some("up"), "{known:?}");

    let cut = Instant::now();
    for engine in [&store, &queue] {
        engine.refuse_connections(true);
        engine.cut_connections().await;
    }
    // What is told about the definitions of jobs may be as old as this.
    pause(s(2)).await;
    while cut.elapsed() < CUT {
        let task = json!({"delay_ms": 60_000});
        is_refused(client, Method::POST, "jobs/short/tasks", Some(&task)).await;
        is_refused(client, Method::GET, "jobs/short/tasks", None).await;
        is_refused(
            client,
            Method::GET,
            &format!("jobs/short/tasks/{due}"),
            None,
        )
        .await;
        is_refused(client, Method::GET, "jobs/short/stats", None).await;
        is_refused(client, Method::GET, "jobs", None).await;
        let known = states(client).await;
        assert_eq!(known.last().map(String::as_str), Some("down"), "{known:?}");
        let (ready, _) = client.page("readyz").await.expect("an answer");
        assert_eq!(ready, 200, "another frontend could do no better");
    }
    assert_eq!((log.begun().len(), log.done().len()), (1, 0));
    for engine in [&store, &queue] {
        engine.refuse_connections(false);
    }

    let back = Instant::now();
    let new = api.submit("short", &json!({})).await;
    let took = back.elapsed();
    let task = api.finished("short", &new, s(30)).await;
    assert_eq!(task["state"], "succeeded", "{task}");
    let task = api.finished("short", &due, s(30)).await;
    assert_eq!(
        (&task["state"], &task["tries"]),
        (&json!("succeeded"), &json!(1)),
        "{task}"
    );
    say(&format!(
        "after {:.0} s without its engines the fleet took a task after {:.1} s and had run all after {:.1} s",
        CUT.as_secs_f64(),
        took.as_secs_f64(),
        back.elapsed().as_secs_f64()
    ));
    let known = states(client).await;
    assert!(
        known.ends_with(&["up".into(), "down".into(), "up".into()]),
        "{known:?}"
    );

    // The run that went on all the time counts, and it was the only one.
    std::fs::write(&go, "").expect("a file");
    let task = api.finished("long", &running, s(30)).await;
    assert_eq!(
        (&task["state"], &task["tries"]),
        (&json!("succeeded"), &json!(1)),
        "{task}"
    );
    assert_eq!(log.begun().len(), 1);
}

/// The call is answered, with "not now" and when to come back.
async fn is_refused(client: &Client, method: Method, path: &str, body: Option<&Value>) {
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
async fn states(client: &Client) -> Vec<String> {
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
