//! Shutdown of servers and workers.

use dueline_tests_end_to_end::{
    RestClient, RunLog, ServerProcess, TestFolder, WorkerProcess, exec_job, print_note, wait_until,
};
use serde_json::json;
use tokio::time::Instant;

use crate::s;

const FIVE: [&str; 2] = ["--concurrency", "5"];
/// A grace far below the duration of the tasks.
const SHORT_GRACE: [&str; 4] = ["--concurrency", "5", "--set", "shutdown.grace_ms=500"];

/// Submits eight tasks for five slots and waits until five of them run.
async fn submit_eight_for_five_slots(api: &RestClient, log: &RunLog) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(api.submit("job", json!({})).await);
    }
    wait_until("five runs to begin", s(20), async || {
        let stats = api.stats("job").await;
        let running = &stats["by_state"]["processing"];
        match log.begun().len() {
            5 if running == 5 => Ok(()),
            runs => Err(format!("{runs} runs, {running} reported")),
        }
    })
    .await;
    ids
}

async fn all_succeed(api: &RestClient, ids: &[String]) {
    for id in ids {
        let task = api.finished("job", id, s(30)).await;
        assert_eq!(task["state"], "succeeded", "{task}");
    }
}

/// The five running tasks are done, and no other has begun.
fn assert_five_are_done(log: &RunLog) {
    assert_eq!((log.begun().len(), log.done().len()), (5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_a_server_that_is_asked_to_stop_starts_nothing_and_lets_running_tasks_end() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &FIVE).await;
    server
        .api
        .put_job("job", exec_job(&log, "sleep 2"), json!({}))
        .await;
    let ids = submit_eight_for_five_slots(&server.api, &log).await;
    let status = server.stop(s(9)).await;
    assert_eq!(status.code(), Some(0), "{}", server.process().log());
    assert_five_are_done(&log);

    server.start_again().await;
    let stats = server.api.stats("job").await;
    assert_eq!(stats["by_state"]["succeeded"], 5, "{stats}");
    all_succeed(&server.api, &ids).await;
    assert!(log.begun_by_task().values().all(|runs| *runs == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_a_server_whose_terminal_is_closed_lets_running_tasks_end() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &FIVE).await;
    let job = exec_job(&log, "sleep 2");
    server.api.put_job("job", job, json!({})).await;
    submit_eight_for_five_slots(&server.api, &log).await;
    server.process().signal("HUP");
    // A shell may repeat the signal of its terminal.
    server.process().signal("HUP");
    let status = server.exited(s(9)).await;
    assert_eq!(status.code(), Some(0), "{}", server.process().log());
    assert_five_are_done(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_by_itself_leaves_no_command_behind() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &FIVE).await;
    let job = hanging_job(&folder, &log);
    server.api.put_job("job", job, json!({})).await;
    submit_eight_for_five_slots(&server.api, &log).await;
    // The store is broken from here on.
    std::fs::remove_file(folder.store()).expect("a file");
    let answer = server.api.post("/v1/jobs/job/tasks", &json!({})).await;
    assert_ne!(
        answer.status, 201,
        "a task was confirmed into a deleted file"
    );
    let status = server.exited(s(20)).await;
    let stderr = server.process().log();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("was deleted or replaced"), "{stderr}");
    let is_alive = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    for run in log.begun() {
        wait_until("the command to be dead", s(5), async || {
            let is_alive = is_alive(run.pid);
            if is_alive {
                Err(format!("{run:?}"))
            } else {
                Ok(())
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_runs_longer_than_the_grace_of_a_server_are_abandoned_and_run_again() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &SHORT_GRACE).await;
    server
        .api
        .put_job("job", hanging_job(&folder, &log), json!({}))
        .await;
    let ids = submit_eight_for_five_slots(&server.api, &log).await;
    let asked = Instant::now();
    let status = server.stop(s(9)).await;
    print_note(&format!(
        "server with a grace of 0.5 s ended after {:.2} s, {status}",
        asked.elapsed().as_secs_f64()
    ));
    assert_eq!(status.code(), Some(10), "{}", server.process().log());
    assert_eq!((log.begun().len(), log.done().len()), (5, 0));

    release_runs(&folder);
    server.start_again().await;
    let back = Instant::now();
    all_succeed(&server.api, &ids).await;
    // The tasks were abandoned, so no lease had to expire.
    assert!(back.elapsed() < s(6), "{:?}", back.elapsed());
    assert_five_were_abandoned(&server.api, &log, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_a_second_signal_ends_a_server_at_once_and_its_tasks_run_again() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &FIVE).await;
    server
        .api
        .put_job("job", hanging_job(&folder, &log), json!({}))
        .await;
    let ids = submit_eight_for_five_slots(&server.api, &log).await;
    server.process().signal("TERM");
    wait_until("the server to log that it stops", s(5), async || {
        let log = server.process().full_log();
        if log.contains("stopping: ") {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    // The default grace is 10 s.
    let status = server.stop(s(4)).await;
    assert_eq!(status.code(), Some(1), "{}", server.process().log());
    release_runs(&folder);
    server.start_again().await;
    all_succeed(&server.api, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_a_worker_that_is_asked_to_stop_starts_nothing_and_lets_running_tasks_end() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let api = &server.api;
    api.put_job("job", exec_job(&log, "sleep 2"), json!({}))
        .await;
    let mut worker = WorkerProcess::start(&folder, api, server.url(), "leaves", &FIVE).await;
    let ids = submit_eight_for_five_slots(api, &log).await;
    worker.process.signal("TERM");
    let status = worker.process.exited(s(9)).await;
    assert_eq!(status.code(), Some(0), "{}", worker.process.log());
    assert_five_are_done(&log);
    let stats = api.stats("job").await;
    assert_eq!(stats["by_state"]["succeeded"], 5, "{stats}");
    assert_eq!(api.workers("leaves").await, Vec::<String>::new());

    worker.start_again(api).await;
    all_succeed(api, &ids).await;
    assert!(log.begun_by_task().values().all(|runs| *runs == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_runs_longer_than_the_grace_of_a_worker_are_abandoned_and_run_again() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let api = &server.api;
    api.put_job("job", hanging_job(&folder, &log), json!({}))
        .await;
    let mut worker = WorkerProcess::start(&folder, api, server.url(), "leaves", &SHORT_GRACE).await;
    let ids = submit_eight_for_five_slots(api, &log).await;
    worker.process.signal("TERM");
    let status = worker.process.exited(s(9)).await;
    print_note(&format!("worker with a grace of 0.5 s ended with {status}"));
    assert_eq!((log.begun().len(), log.done().len()), (5, 0));
    release_runs(&folder);
    wait_until("nothing to be owned", s(2), async || {
        let stats = api.stats("job").await;
        if stats["by_status"]["running"] == 0 {
            Ok(())
        } else {
            Err(stats.to_string())
        }
    })
    .await;

    worker.start_again(api).await;
    all_succeed(api, &ids).await;
    assert_five_were_abandoned(api, &log, &ids).await;
}

/// A job whose runs hang until [`release_runs`]. The script cannot use the number of the run instead, because an
/// abandoned run may or may not use a try.
fn hanging_job(folder: &TestFolder, log: &RunLog) -> serde_json::Value {
    let go = folder.file("go").display().to_string();
    exec_job(log, &format!("if [ ! -e '{go}' ]; then sleep 60; fi"))
}

fn release_runs(folder: &TestFolder) {
    std::fs::write(folder.file("go"), "").expect("a file");
}

/// The five tasks that had begun ran twice, and their first run is stored as abandoned.
async fn assert_five_were_abandoned(api: &RestClient, log: &RunLog, ids: &[String]) {
    let runs = log.begun_by_task();
    let twice: Vec<_> = ids.iter().filter(|id| runs[*id] == 2).collect();
    assert_eq!(twice.len(), 5, "{runs:?}");
    for id in twice {
        let task = api.task("job", id).await;
        assert_eq!(task["runs"][0]["end"], "abandoned", "{task}");
    }
}
