//! Services in separate processes.

use dueline_tests_end_to_end::{
    ControllerProcess, RunLog, ServerProcess, TestFolder, WorkerProcess, assert_stays, exec_job,
    print_note, wait_until,
};
use serde_json::json;
use tokio::time::Instant;

use crate::s;

#[tokio::test(flavor = "multi_thread")]
async fn f_119_a_frontend_alone_accepts_and_shows_tasks_and_runs_none() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server =
        ServerProcess::start(&folder, &["--services", "frontend", "--no-worker"]).await;
    server
        .api
        .put_job("job", exec_job(&log, "true"), json!({}))
        .await;
    let now = server.api.submit("job", json!({"payload": 7})).await;
    let soon = server.api.submit("job", json!({"delay_ms": 100})).await;
    let answer = server
        .api
        .post("work:next", &json!({"worker": "w@1", "jobs": ["job"]}))
        .await;
    assert!(answer.status >= 400, "{answer:?}");
    let task = server.api.task("job", &now).await;
    assert_eq!((&task["payload"], &task["tries"]), (&json!(7), &json!(0)));
    let worker = WorkerProcess::launch(&folder, server.url(), "eager", &[]);
    assert_stays("no run", s(2), async || match log.begun().len() {
        0 => Ok(()),
        runs => Err(format!("{runs} runs")),
    })
    .await;
    drop(worker);

    // The tasks were stored: once the other services run on the same file, they are executed.
    assert_eq!(server.stop(s(20)).await.code(), Some(0));
    server.start_again_with(&[]).await;
    for id in [&now, &soon] {
        let task = server.api.finished("job", id, s(20)).await;
        assert_eq!(
            (&task["state"], &task["tries"]),
            (&json!("succeeded"), &json!(1))
        );
    }
}

/// The first run hangs, and records when it is stopped.
const FIRST_RUN_HANGS: &str = r#"
if [ "$DUELINE_ATTEMPT" = 0 ] && [ "$(cat)" = '"hang"' ]; then
    trap 'record T; kill $child; exit 1' TERM
    sleep 60 & child=$!
    wait
fi"#;

#[tokio::test(flavor = "multi_thread")]
async fn f_064_f_124_f_149_tasks_of_a_killed_controller_run_elsewhere() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let api = &server.api;
    api.put_job("job", exec_job(&log, FIRST_RUN_HANGS), json!({}))
        .await;
    let mut controller = ControllerProcess::start(&folder, server.url()).await;
    let one = ["--concurrency", "1"];
    let runs = WorkerProcess::start(&folder, api, controller.url(), "runs", &one).await;
    let hung = api.submit("job", json!({"payload": "hang"})).await;
    let task = api.in_state("job", &hung, "processing", s(20)).await;
    assert_eq!(task["owner"], runs.id.as_str());

    // This executor is frozen while its poll waits: the controller claims the next task for it, and the run does not
    // begin.
    let mut claims = WorkerProcess::start(&folder, api, controller.url(), "claims", &one).await;
    let warm_up = api.submit("job", json!({})).await;
    api.in_state("job", &warm_up, "succeeded", s(20)).await;
    let claimed = freeze_with_a_claim(&server, &claims).await;

    controller.kill().await;
    claims.kill().await;
    let killed = Instant::now();
    let _spare =
        WorkerProcess::start(&folder, api, server.url(), "spare", &["--concurrency", "4"]).await;
    let mut hung_wait = None;
    let mut claimed_wait = None;
    wait_until("both tasks to run again", s(30), async || {
        let since = killed.elapsed();
        if log.begun_of(&hung).len() == 2 {
            hung_wait.get_or_insert(since);
        }
        if log.begun_of(&claimed).len() == 1 {
            claimed_wait.get_or_insert(since);
        }
        match (hung_wait, claimed_wait) {
            (Some(_), Some(_)) => Ok(()),
            waits => Err(format!("{waits:?}\n{}", api.task("job", &claimed).await)),
        }
    })
    .await;
    let (hung_wait, claimed_wait) = (hung_wait.unwrap(), claimed_wait.unwrap());
    print_note(&format!(
        "killed controller: a claimed task runs elsewhere after {:.1} s, a running one after {:.1} s",
        claimed_wait.as_secs_f64(),
        hung_wait.as_secs_f64()
    ));
    // Claim timeout 10 s, heartbeat timeout 8 s, and two poll periods.
    assert!(claimed_wait < s(14), "{claimed_wait:?}");
    assert!(hung_wait < s(12), "{hung_wait:?}");

    let task = api.finished("job", &claimed, s(20)).await;
    assert_eq!(task["state"], "succeeded", "{task}");
    assert_eq!(
        (&task["tries"], &task["losses"]),
        (&json!(1), &json!(1)),
        "{task}"
    );
    let task = api.finished("job", &hung, s(20)).await;
    assert_eq!(task["state"], "succeeded", "{task}");
    assert_eq!(task["tries"], 2, "{task}");
    // The executor whose heartbeats were not answered stopped its run before the next one began.
    let stopped = log.entries("T");
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert!(
        stopped[0].at_ms <= log.begun_of(&hung)[1].at_ms,
        "the runs overlapped"
    );
}

/// Freezes the worker and returns a task that was claimed for it and whose run has not begun.
async fn freeze_with_a_claim(server: &ServerProcess<'_>, worker: &WorkerProcess<'_>) -> String {
    let api = &server.api;
    for _ in 0..10 {
        worker.process.signal("STOP");
        let id = api.submit("job", json!({})).await;
        let since = Instant::now();
        while since.elapsed() < s(2) {
            let task = api.task("job", &id).await;
            if task["state"] == "claimed" {
                assert_eq!(task["owner"], worker.id.as_str(), "{task}");
                return id;
            }
        }
        // The worker was frozen before it polled.
        worker.process.signal("CONT");
        api.in_state("job", &id, "succeeded", s(20)).await;
    }
    panic!("the worker was never waiting in a poll when it was frozen");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_124_executors_of_one_controller_share_its_work_and_outlive_each_other() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let api = &server.api;
    let script = r#"if [ "$DUELINE_ATTEMPT" = 0 ]; then sleep 3; fi"#;
    api.put_job("job", exec_job(&log, script), json!({})).await;
    let controller = ControllerProcess::start(&folder, server.url()).await;
    let four = ["--concurrency", "4", "--set", "worker.concurrency_min=4"];
    let _lives = WorkerProcess::start(&folder, api, controller.url(), "lives", &four).await;
    let mut dies = WorkerProcess::start(&folder, api, controller.url(), "dies", &four).await;
    for _ in 0..8 {
        api.submit("job", json!({})).await;
    }
    let in_flight = wait_until("eight tasks in flight", s(20), async || {
        let stats = api.stats("job").await;
        if stats["by_state"]["processing"] == 8 {
            Ok(log.begun())
        } else {
            Err(stats.to_string())
        }
    })
    .await;
    assert_eq!(log.done().len(), 0, "eight at once");
    for host in ["lives", "dies"] {
        let runs = in_flight.iter().filter(|entry| entry.host == host).count();
        assert_eq!(runs, 4, "{in_flight:#?}");
    }
    dies.kill().await;
    wait_until("all tasks to succeed", s(30), async || {
        let stats = api.stats("job").await;
        if stats["by_state"]["succeeded"] == 8 {
            Ok(())
        } else {
            Err(stats.to_string())
        }
    })
    .await;
    for task in api.tasks("job").await {
        let id = task["id"].as_str().unwrap();
        let runs = log.begun_of(id);
        let expected = if runs[0].host == "lives" { 1 } else { 2 };
        assert_eq!(
            (runs.len(), &task["tries"]),
            (expected, &json!(expected)),
            "{task}"
        );
        assert!(
            runs[1..].iter().all(|entry| entry.host == "lives"),
            "{runs:?}"
        );
    }
}
