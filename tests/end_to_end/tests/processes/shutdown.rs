//! Orderly ends.

use dueline_tests_end_to_end::{Client, Place, RunLog, Server, Worker, exec_job, say, wait_until};
use serde_json::json;
use tokio::time::Instant;

use crate::s;

const FIVE: [&str; 2] = ["--concurrency", "5"];
/// Far less than the tasks take.
const SHORT_GRACE: [&str; 4] = ["--concurrency", "5", "--set", "shutdown.grace_ms=500"];

/// Eight tasks for five slots, five of which run.
async fn eight_for_five(api: &Client, log: &RunLog) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(api.submit("job", json!({})).await);
    }
    wait_until("five runs to begin", s(20), async || {
        let stats = api.stats("job").await;
        let running = &stats["by_state"]["processing"];
        match log.begun().len() {
            5 if running == 5 => Ok(()),
            runs => Err(format!("{runs} runs, {running} known")),
        }
    })
    .await;
    ids
}

async fn all_succeed(api: &Client, ids: &[String]) {
    for id in ids {
        let task = api.finished("job", id, s(30)).await;
        assert_eq!(task["state"], "succeeded", "{task}");
    }
}

/// The five that ran are done, and no other has begun.
fn five_are_done(log: &RunLog) {
    assert_eq!((log.begun().len(), log.done().len()), (5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_a_server_that_is_asked_to_stop_starts_nothing_and_lets_running_tasks_end() {
    let place = Place::new();
    let log = RunLog::new(&place);
    let mut server = Server::start(&place, &FIVE).await;
    server
        .api
        .put_job("job", exec_job(&log, "sleep 2"), json!({}))
        .await;
    let ids = eight_for_five(&server.api, &log).await;
    let status = server.stop(s(9)).await;
    assert_eq!(status.code(), Some(0), "{}", server.process().log());
    five_are_done(&log);

    server.start_again().await;
    let stats = server.api.stats("job").await;
    assert_eq!(stats["by_state"]["succeeded"], 5, "{stats}");
    all_succeed(&server.api, &ids).await;
    assert!(log.begun_by_task().values().all(|runs| *runs == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_what_outlasts_the_grace_of_a_server_is_given_back_and_runs_later() {
    let place = Place::new();
    let log = RunLog::new(&place);
    let mut server = Server::start(&place, &SHORT_GRACE).await;
    server
        .api
        .put_job("job", hangs(&place, &log), json!({}))
        .await;
    let ids = eight_for_five(&server.api, &log).await;
    let asked = Instant::now();
    let status = server.stop(s(9)).await;
    say(&format!(
        "server with a grace of 0.5 s ended after {:.2} s, {status}",
        asked.elapsed().as_secs_f64()
    ));
    assert_eq!(status.code(), Some(10), "{}", server.process().log());
    assert_eq!((log.begun().len(), log.done().len()), (5, 0));

    let_go(&place);
    server.start_again().await;
    let back = Instant::now();
    all_succeed(&server.api, &ids).await;
    // They were given back, so no lease had to lapse.
    assert!(back.elapsed() < s(6), "{:?}", back.elapsed());
    given_back(&server.api, &log, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_a_second_signal_ends_a_server_at_once_and_its_tasks_run_again() {
    let place = Place::new();
    let log = RunLog::new(&place);
    let mut server = Server::start(&place, &FIVE).await;
    server
        .api
        .put_job("job", hangs(&place, &log), json!({}))
        .await;
    let ids = eight_for_five(&server.api, &log).await;
    server.process().signal("TERM");
    wait_until("it to say that it stops", s(5), async || {
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
    let_go(&place);
    server.start_again().await;
    all_succeed(&server.api, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_a_worker_that_is_asked_to_stop_starts_nothing_and_lets_running_tasks_end() {
    let place = Place::new();
    let log = RunLog::new(&place);
    let server = Server::start(&place, &["--no-worker"]).await;
    let api = &server.api;
    api.put_job("job", exec_job(&log, "sleep 2"), json!({}))
        .await;
    let mut worker = Worker::start(&place, api, server.url(), "leaves", &FIVE).await;
    let ids = eight_for_five(api, &log).await;
    worker.process.signal("TERM");
    let status = worker.process.ended(s(9)).await;
    assert_eq!(status.code(), Some(0), "{}", worker.process.log());
    five_are_done(&log);
    let stats = api.stats("job").await;
    assert_eq!(stats["by_state"]["succeeded"], 5, "{stats}");
    assert_eq!(api.workers("leaves").await, Vec::<String>::new());

    worker.start_again(api).await;
    all_succeed(api, &ids).await;
    assert!(log.begun_by_task().values().all(|runs| *runs == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_what_outlasts_the_grace_of_a_worker_is_given_back_and_runs_later() {
    let place = Place::new();
    let log = RunLog::new(&place);
    let server = Server::start(&place, &["--no-worker"]).await;
    let api = &server.api;
    api.put_job("job", hangs(&place, &log), json!({})).await;
    let mut worker = Worker::start(&place, api, server.url(), "leaves", &SHORT_GRACE).await;
    let ids = eight_for_five(api, &log).await;
    worker.process.signal("TERM");
    let status = worker.process.ended(s(9)).await;
    say(&format!("worker with a grace of 0.5 s ended with {status}"));
    assert_eq!((log.begun().len(), log.done().len()), (5, 0));
    let_go(&place);
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
    given_back(api, &log, &ids).await;
}

/// A job whose runs hang until [`let_go`]. The number of the run would not do: giving a task back may use a try or not.
fn hangs(place: &Place, log: &RunLog) -> serde_json::Value {
    let go = place.file("go").display().to_string();
    exec_job(log, &format!("if [ ! -e '{go}' ]; then sleep 60; fi"))
}

fn let_go(place: &Place) {
    std::fs::write(place.file("go"), "").expect("a file");
}

/// The five that had begun ran twice, and their history says that they were given back.
async fn given_back(api: &Client, log: &RunLog, ids: &[String]) {
    let runs = log.begun_by_task();
    let twice: Vec<_> = ids.iter().filter(|id| runs[*id] == 2).collect();
    assert_eq!(twice.len(), 5, "{runs:?}");
    for id in twice {
        let task = api.task("job", id).await;
        assert_eq!(task["runs"][0]["end"], "abandoned", "{task}");
    }
}
