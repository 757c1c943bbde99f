//! Controllers: one per address, with a bounded buffer, for the jobs that it serves.

use std::time::Duration;

use dueline_tests_end_to_end::{
    RunLog, TestFolder, assert_stays, exec_job, pause, print_note, wait_until,
};
use dueline_tests_fleet::{Fleet, FleetPlan, FleetResources, shared_machine};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{fleet, s, words};

/// Most tasks that a controller buffers for an executor with one slot: those of one receive, which has up to 10 messages
/// with up to 25 tasks each.
const BUFFERED_MAX: u64 = 250;

/// A fleet without controllers.
fn no_controller() -> FleetPlan {
    FleetPlan {
        controllers: 0,
        ..FleetPlan::default()
    }
}

/// A job whose runs hang until a file exists.
fn hanging_job(folder: &TestFolder, log: &RunLog) -> Value {
    let go = folder.file("go").display().to_string();
    exec_job(log, &format!("while [ ! -e '{go}' ]; do sleep 0.2; done"))
}

fn release_runs(folder: &TestFolder) {
    std::fs::write(folder.file("go"), "").expect("a file");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_122_a_second_controller_at_the_same_address_refuses_to_start() {
    let _machine = shared_machine().await;
    let fleet = fleet(&FleetPlan::default()).await;
    let address = fleet.member("controller-0").url().replace("http://", "");
    let mut args = vec!["--listen".to_owned(), address.clone()];
    args.extend(fleet.controller_args(1, &[]));
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let variables = FleetResources::variables();
    let exited = fleet
        .resources()
        .run("dueline-controller", &args, &variables)
        .await;
    assert_eq!(exited.code, Some(5), "{exited:?}");
    assert!(
        exited
            .stderr
            .contains(&format!("failed to listen on {address}")),
        "{exited:?}"
    );
    // The first controller still works.
    let api = fleet.api();
    api.put_noop("job", json!({})).await;
    let id = api.submit("job", &json!({})).await;
    let task = api.finished("job", &id, s(30)).await;
    assert_eq!(task["state"], "succeeded", "{task}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_122_the_backlog_of_a_controller_that_is_asked_to_stop_runs_elsewhere_at_once() {
    const TASKS: usize = 20;
    let _machine = shared_machine().await;
    let mut fleet = fleet(&no_controller()).await;
    let (api, engines) = (fleet.api().clone(), fleet.resources().engine_clients());
    let log = RunLog::new(fleet.resources().folder());
    let hangs = hanging_job(fleet.resources().folder(), &log);
    api.put_job("job", hangs, json!({"enqueue_timeout_ms": 300_000}))
        .await;
    fleet.start_controller(0, &[]).await;
    fleet.start_executor(0, 0, &words("--concurrency 1")).await;
    for _ in 0..TASKS {
        api.submit("job", &json!({})).await;
    }
    // One task runs. The others stay in the queue, because the executor has no room for them.
    wait_until("messages in the queue", s(30), async || {
        match (log.begun().len(), engines.messages("job").await) {
            (1, (waiting, _)) if waiting > 0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // The executor cannot run what its controller has claimed for it.
    let executor = fleet.member("executor-0-0").process();
    executor.signal("STOP");
    release_runs(fleet.resources().folder());
    fleet.start_controller(1, &[]).await;
    fleet.start_executor(1, 0, &words("--concurrency 4")).await;

    let asked = Instant::now();
    let status = fleet.stop("controller-0", s(20)).await;
    assert_eq!(status.code(), Some(0), "{}", log_of(&fleet, "controller-0"));
    api.count("job", "succeeded", TASKS - 1, s(25)).await;
    let took = asked.elapsed();
    print_note(&format!(
        "{} tasks ran elsewhere {:.1} s after SIGTERM",
        TASKS - 1,
        took.as_secs_f64()
    ));
    // Far below the visibility timeout of 30 s, after which messages of a crashed controller are delivered again.
    assert!(took < s(20), "{took:?}");
}

fn log_of(fleet: &Fleet, name: &str) -> String {
    fleet.member(name).process().log()
}

#[tokio::test(flavor = "multi_thread")]
async fn f_122_a_controller_buffers_only_what_its_executors_take_next() {
    const TASKS: usize = 2_600;
    let _machine = shared_machine().await;
    let mut fleet = fleet(&no_controller()).await;
    let (api, engines) = (fleet.api().clone(), fleet.resources().engine_clients());
    let log = RunLog::new(fleet.resources().folder());
    let hangs = hanging_job(fleet.resources().folder(), &log);
    api.put_job("job", hangs, json!({"enqueue_timeout_ms": 300_000}))
        .await;
    fleet.start_controller(0, &[]).await;
    fleet.start_executor(0, 0, &words("--concurrency 1")).await;
    let batch = vec![json!({}); TASKS / 4];
    for _ in 0..4 {
        api.submit_all("job", batch.clone(), s(60)).await;
    }
    wait_until("a run", s(30), async || match log.begun().len() {
        1 => Ok(()),
        runs => Err(format!("{runs} runs")),
    })
    .await;
    let controller = dueline_tests_end_to_end::RestClient::new(fleet.member("controller-0").url());
    let (since, mut largest) = (Instant::now(), 0);
    while since.elapsed() < s(8) {
        largest = buffered_messages(&controller).await.max(largest);
        pause(Duration::from_millis(100)).await;
    }
    let (waiting, in_flight) = engines.messages("job").await;
    print_note(&format!(
        "{largest} of {TASKS} tasks were buffered; {waiting} messages waited, {in_flight} were in flight"
    ));
    assert!(largest <= BUFFERED_MAX, "{largest} tasks were buffered");
    assert!(waiting > 0, "the queue is empty");
    assert_eq!(log.begun().len(), 1);
}

async fn buffered_messages(controller: &dueline_tests_end_to_end::RestClient) -> u64 {
    let (status, text) = controller.page("metrics").await.expect("metrics");
    assert_eq!(status, 200, "{text}");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("dueline_controller_buffered "));
    line.and_then(|value| value.parse::<f64>().ok())
        .unwrap_or(0.0) as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn f_027_f_123_a_controller_receives_no_messages_of_jobs_that_it_does_not_serve() {
    let _machine = shared_machine().await;
    let mut fleet = fleet(&no_controller()).await;
    let (api, engines) = (fleet.api().clone(), fleet.resources().engine_clients());
    for job in ["a", "b", "c"] {
        api.put_noop(job, json!({})).await;
        api.submit(job, &json!({})).await;
    }
    fleet.start_controller(0, &["--jobs", "a,b"]).await;
    fleet.start_executor(0, 0, &[]).await;
    let late = api.submit("c", &json!({})).await;
    for job in ["a", "b"] {
        api.submit(job, &json!({})).await;
        api.count(job, "succeeded", 2, s(30)).await;
    }
    assert_stays("the queue of the other job", s(3), async || {
        let stats = api.stats("c").await;
        match (
            stats["by_state"]["enqueued"].as_u64(),
            engines.messages("c").await,
        ) {
            (Some(2), (messages, 0)) if messages > 0 => Ok(()),
            (_, messages) => Err(format!("{stats}, {messages:?}")),
        }
    })
    .await;
    let task = api.task("c", &late).await;
    assert_eq!(
        (&task["tries"], &task["losses"]),
        (&json!(0), &json!(0)),
        "{task}"
    );
    // These messages were never received before.
    assert_eq!(engines.receives("c").await, 1);

    // A host that serves the job runs them.
    fleet.start_controller(1, &["--jobs", "c"]).await;
    fleet.start_executor(1, 0, &[]).await;
    api.count("c", "succeeded", 2, s(60)).await;
}
