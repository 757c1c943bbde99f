//! Workers that are kept to some jobs.

use dueline_tests_end_to_end::{
    RunLog, ServerProcess, TestFolder, WorkerProcess, exec_job, run_dueline,
};
use serde_json::json;

use crate::s;

#[tokio::test(flavor = "multi_thread")]
async fn f_027_a_worker_that_is_kept_to_two_jobs_leaves_the_third_alone() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let api = &server.api;
    for job in ["a", "b", "c"] {
        api.put_job(job, exec_job(&log, "true"), json!({})).await;
    }
    api.put_job("by-hand", json!({}), json!({})).await;
    let mut ids = Vec::new();
    for job in ["a", "b", "c"] {
        ids.push((job, api.submit(job, json!({})).await));
    }
    let jobs = ["--jobs", "a,b"];
    let _worker = WorkerProcess::start(&folder, api, server.url(), "kept", &jobs).await;
    for job in ["a", "b", "c"] {
        ids.push((job, api.submit(job, json!({})).await));
    }
    for (job, id) in &ids {
        if *job != "c" {
            let task = api.finished(job, id, s(20)).await;
            assert_eq!(task["state"], "succeeded", "{task}");
        }
    }
    for (job, id) in ids.iter().filter(|(job, _)| *job == "c") {
        let task = api.task(job, id).await;
        assert_eq!(
            (&task["state"], &task["tries"]),
            (&json!("enqueued"), &json!(0))
        );
        assert_eq!((&task["losses"], &task["owner"]), (&json!(0), &json!(null)));
    }

    // A misspelt job, and one for which the worker has no handler, are told at the start.
    for (job, code, text) in [
        ("nosuch", 3, "job 'nosuch' does not exist"),
        (
            "by-hand",
            2,
            "job 'by-hand' has the handler 'worker', which this worker lacks",
        ),
    ] {
        let both = format!("a,{job}");
        let args = ["worker", "run", "--server", server.url(), "--jobs", &both];
        let ended = run_dueline(&folder, &args).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains(text), "{ended:?}");
    }
}
