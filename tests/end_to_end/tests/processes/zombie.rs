//! Workers that resume after their lease expired.

use dueline_tests_end_to_end::{
    RunLog, ServerProcess, TestFolder, WorkerProcess, exec_job, print_note, wait_until,
};
use serde_json::json;
use tokio::time::Instant;

use crate::s;

#[tokio::test(flavor = "multi_thread")]
async fn f_049_f_080_c3_the_result_of_a_worker_that_was_frozen_past_its_lease_is_refused() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let api = &server.api;
    // The result names the worker. The run is long enough to freeze its worker meanwhile, and is over long before the
    // worker resumes.
    let script =
        r#"if [ "$DUELINE_ATTEMPT" = 0 ]; then sleep 3; fi; printf '"%s"' "${TMPDIR##*/}""#;
    api.put_job("job", exec_job(&log, script), json!({})).await;
    let one = ["--concurrency", "1"];
    let frozen = WorkerProcess::start(&folder, api, server.url(), "frozen", &one).await;
    let id = api.submit("job", json!({})).await;
    let task = api.in_state("job", &id, "processing", s(20)).await;
    assert_eq!(task["owner"], frozen.id.as_str());
    wait_until("the run to begin", s(20), async || {
        log.begun().pop().ok_or_else(String::new)
    })
    .await;
    frozen.process.signal("STOP");
    let frozen_at = Instant::now();
    assert_eq!(log.done().len(), 0, "frozen too late");

    let mut other = WorkerProcess::start(&folder, api, server.url(), "other", &one).await;
    let task = api.finished("job", &id, s(30)).await;
    let wait = frozen_at.elapsed();
    print_note(&format!(
        "frozen worker: its task is finished elsewhere after {:.1} s",
        wait.as_secs_f64()
    ));
    assert!(wait < s(13), "{wait:?}");
    assert_eq!(task["state"], "succeeded", "{task}");
    assert_eq!(task["result"], "other", "{task}");
    // The command of the frozen worker has succeeded long ago, and the worker has not noticed yet.
    assert_eq!((log.begun_of(&id).len(), log.done().len()), (2, 2));
    other.kill().await;

    frozen.process.signal("CONT");
    // Running the next task shows that the worker works again.
    let next = api.submit("job", json!({})).await;
    let next = api.finished("job", &next, s(30)).await;
    assert_eq!(next["result"], "frozen", "{next}");
    let after = api.task("job", &id).await;
    assert_eq!(after, task, "the zombie changed a finished task");
    assert_eq!(after["tries"], 2, "{after}");
    assert_eq!(after["runs"][0]["end"], "lost", "{after}");
    assert_eq!(after["runs"][0]["worker"], frozen.id.as_str(), "{after}");
    assert_eq!(log.begun_of(&id).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_080_reports_of_a_stale_owner_are_refused_as_lost_and_change_nothing() {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let api = &server.api;
    api.put_job("job", json!({}), json!({"heartbeat_timeout_ms": 1000}))
        .await;
    let id = api.submit("job", json!({"payload": "original"})).await;
    let next = async |worker: &str| {
        let poll = json!({"worker": worker, "jobs": ["job"], "wait_ms": 20000});
        let mut work = api.post("work:next", &poll).await.expect_success();
        let task = work["tasks"][0].take();
        assert_eq!(task["id"], id.as_str(), "{work}");
        let start = json!({"token": task["token"]});
        api.post(&format!("work/job/{id}/start"), &start)
            .await
            .expect_success();
        task
    };
    let stale = next("first@1").await;
    let current = next("second@1").await;
    assert_ne!(stale["token"], current["token"]);
    assert_eq!(
        (&stale["attempt"], &current["attempt"]),
        (&json!(0), &json!(1))
    );
    for (verb, what) in [
        ("heartbeat", json!({})),
        ("checkpoint", json!({"payload": "stale"})),
        ("complete", json!({"result": "stale"})),
        ("fail", json!({"error": "stale"})),
        ("abandon", json!({})),
    ] {
        let mut body = json!({"token": stale["token"]});
        body.as_object_mut()
            .unwrap()
            .extend(what.as_object().unwrap().clone());
        let answer = api.post(&format!("work/job/{id}/{verb}"), &body).await;
        assert_eq!(
            (answer.status, &answer.body["reason"]),
            (409, &json!("lost")),
            "{verb}: {answer:?}"
        );
    }
    let done = json!({"token": current["token"], "result": "current"});
    api.post(&format!("work/job/{id}/complete"), &done)
        .await
        .expect_success();
    let task = api.task("job", &id).await;
    assert_eq!(
        (&task["state"], &task["result"]),
        (&json!("succeeded"), &json!("current"))
    );
    assert_eq!(task["checkpoint"], json!(null), "{task}");
}
