//! Servers that restart while workers in other processes continue.

use dueline_tests_end_to_end::{
    RunLog, ServerProcess, TestFolder, WorkerProcess, exec_job, wait_until,
};
use serde_json::json;

use crate::s;

#[tokio::test(flavor = "multi_thread")]
async fn f_114_a_killed_and_restarted_server_leaves_the_run_of_an_outside_worker_alone() {
    server_restarts_while_a_task_runs(async |server| server.kill().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_114_a_stopped_and_restarted_server_leaves_the_run_of_an_outside_worker_alone() {
    server_restarts_while_a_task_runs(async |server| {
        let status = server.stop(s(9)).await;
        assert_eq!(status.code(), Some(0), "{}", server.process().log());
    })
    .await;
}

async fn server_restarts_while_a_task_runs(end: impl AsyncFnOnce(&mut ServerProcess<'_>)) {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let job = exec_job(&log, "sleep 6; echo finished");
    server.api.put_job("long", job, json!({})).await;
    let worker = WorkerProcess::start(&folder, &server.api, server.url(), "outside", &[]).await;
    let id = server.api.submit("long", json!({})).await;
    let before = server.api.in_state("long", &id, "processing", s(20)).await;
    assert_eq!(before["owner"], worker.id.as_str());

    end(&mut server).await;
    server.start_again().await;
    let after = server.api.task("long", &id).await;
    assert_eq!(after["state"], "processing", "{after}");
    assert_eq!(after["owner"], worker.id.as_str(), "{after}");
    wait_until("the worker to register again", s(20), async || {
        let ids = server.api.workers("outside").await;
        if ids == [worker.id.clone()] {
            Ok(())
        } else {
            Err(format!("{ids:?}"))
        }
    })
    .await;

    let task = server.api.finished("long", &id, s(20)).await;
    assert_eq!(task["state"], "succeeded", "{task}");
    assert_eq!(task["tries"], 1, "{task}");
    assert_eq!(task["runs"].as_array().unwrap().len(), 1, "{task}");
    assert_eq!((log.begun().len(), log.done().len()), (1, 1));
    // The worker's connection delivers further tasks, too.
    let id = server.api.submit("long", json!({})).await;
    server.api.in_state("long", &id, "processing", s(20)).await;
}
