//! Workers in other languages.

use std::path::Path;

use dueline_tests_end_to_end::{ChildProcess, ServerProcess, TestFolder};
use serde_json::json;

use crate::s;

const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/worker.py");

fn start(folder: &TestFolder, url: &str) -> ChildProcess {
    let works = std::process::Command::new("python3")
        .arg("--version")
        .output();
    assert!(
        works.is_ok_and(|output| output.status.success()),
        "this test needs python3 on the PATH: it shows that a worker can be written in any language"
    );
    ChildProcess::start(
        folder,
        "python",
        Path::new("python3"),
        &[WORKER, url, "squares"],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn f_133_g_16_a_worker_in_another_language_completes_tasks_over_http_alone() {
    let folder = TestFolder::new();
    let mut server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let quick = json!({"backoff": {"standard": {"initial_ms": 50}}, "heartbeat_timeout_ms": 1000});
    server.api.put_job("squares", json!({}), quick).await;
    let mut worker = start(&folder, server.url());
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(
            server
                .api
                .submit("squares", json!({"payload": {"n": n}}))
                .await,
        );
    }
    for (n, id) in ids.iter().enumerate() {
        let task = server.api.finished("squares", id, s(30)).await;
        assert_eq!(task["state"], "succeeded", "{task}\n{}", worker.log());
        assert_eq!(
            (&task["result"], &task["tries"]),
            (&json!(n * n), &json!(1)),
            "{task}"
        );
    }

    // A failure is reported with its reason, and retried.
    let id = server
        .api
        .submit("squares", json!({"payload": {"n": 7, "fails": 1}}))
        .await;
    let task = server.api.finished("squares", &id, s(30)).await;
    assert_eq!(
        (&task["state"], &task["result"]),
        (&json!("succeeded"), &json!(49)),
        "{task}"
    );
    let first = &task["runs"][0];
    assert_eq!(first["end"], "retriable", "{task}");
    assert!(
        first["info"]
            .as_str()
            .unwrap()
            .contains("not yet: attempt 0"),
        "{task}"
    );

    // Heartbeats keep the lease of a run that is longer than the heartbeat timeout, also across a server restart.
    let id = server
        .api
        .submit("squares", json!({"payload": {"n": 8, "seconds": 3}}))
        .await;
    server
        .api
        .in_state("squares", &id, "processing", s(30))
        .await;
    server.kill().await;
    server.start_again().await;
    let task = server.api.finished("squares", &id, s(30)).await;
    assert_eq!(
        (&task["result"], &task["tries"]),
        (&json!(64), &json!(1)),
        "{task}\n{}",
        worker.log()
    );

    // It is listed, so that operators see who serves the job; and it stops a run that is cancelled.
    let id = server
        .api
        .submit("squares", json!({"payload": {"n": 9, "seconds": 60}}))
        .await;
    let running = server.api.in_state("squares", &id, "processing", s(30));
    let owner = running.await["owner"].clone();
    let listed = server.api.get("workers").await.expect_success();
    let listed = &listed["workers"][0];
    assert_eq!(
        (&listed["id"], &listed["jobs"]),
        (&owner, &json!(["squares"]))
    );
    let cancel = format!("jobs/squares/tasks/{id}/cancel");
    let request = json!({"running": "request"});
    server.api.post(&cancel, &request).await.expect_success();
    let task = server.api.finished("squares", &id, s(30)).await;
    assert_eq!(task["state"], "cancelled", "{task}");

    // Asked to stop, it ends the task that it has and leaves.
    let id = server
        .api
        .submit("squares", json!({"payload": {"n": 3, "seconds": 2}}))
        .await;
    server
        .api
        .in_state("squares", &id, "processing", s(30))
        .await;
    worker.signal("TERM");
    assert!(worker.exited(s(30)).await.success(), "{}", worker.log());
    let task = server.api.finished("squares", &id, s(1)).await;
    assert_eq!(task["result"], 9, "{task}");
    let listed = server.api.get("workers").await.expect_success();
    assert_eq!(listed["workers"], json!([]));
}
