//! Submits and runs while one process of each role is down.

use std::{collections::BTreeMap, time::Duration};

use dueline_tests_end_to_end::{RunLog, new_id, pause, print_note, wait_until};
use dueline_tests_fleet::{
    FleetClient, FleetPlan, FleetRole, HistoryTally, SubmittedTask, check_history, late_ms,
    percentile, shared_machine,
};
use reqwest::Method;
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{fleet, s, words};

const PER_SECOND: u32 = 20;
/// How long a process stays down, and how long it is up again before the next role's turn.
const DOWN: Duration = Duration::from_secs(3);
const UP: Duration = Duration::from_secs(2);
/// A client gives up after this.
const SUBMIT_MAX: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn f_129_submits_are_accepted_and_tasks_run_while_one_of_each_service_dies_in_turn() {
    let _machine = shared_machine().await;
    let plan = FleetPlan {
        frontends: 2,
        consumers: 2,
        status_controllers: 2,
        controllers: 2,
        executor_args: words("--concurrency 4"),
        // Messages of a killed controller, and those that the engine delivers to its dead polls, become visible again
        // after this time.
        queue_options: "visibility_timeout_s=10",
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&plan).await;
    let api = fleet.api().clone();
    let log = RunLog::new(fleet.resources().folder());
    // A task that was marked as enqueued, but not sent when its process died, is enqueued again after this time.
    let policy = json!({"retries_max": 20, "enqueue_timeout_ms": 10_000});
    api.put_noop("job", policy).await;

    let machine = u32::try_from(FleetRole::ALL.len()).unwrap();
    let span = (DOWN + UP) * machine;
    let mut submits = JoinSet::new();
    submits.spawn(submit_for(api.clone(), span));
    for role in FleetRole::ALL {
        let name = fleet.names(role).swap_remove(0);
        let done_before = done(&api).await;
        fleet.kill(&name).await;
        pause(DOWN).await;
        // Other processes of the role continue its work. Messages that the killed process had received become visible
        // again only after a while, and statistics are a few seconds old.
        wait_until(
            &format!("tasks to run without {name}"),
            s(15),
            async || match done(&api).await {
                done if done > done_before => Ok(()),
                done => Err(done.to_string()),
            },
        )
        .await;
        fleet.start_again(&name).await;
        pause(UP).await;
    }
    let (accepted, refused, repeats) = submits.join_next().await.unwrap().expect("all submits");
    print_note(&format!(
        "one of each service killed in turn: {} submits accepted, {refused} refused; {repeats} calls repeated",
        accepted.len()
    ));
    let all = accepted.len() + refused;
    assert!(all >= 450, "only {all} submits were tried");
    assert!(
        accepted.len() * 1_000 >= all * 999,
        "{refused} of {all} were not accepted"
    );

    let total = accepted.len();
    let since = Instant::now();
    api.count("job", "succeeded", total, s(60)).await;
    print_note(&format!(
        "all of them had run {:.1} s after the last kill",
        (UP + since.elapsed()).as_secs_f64()
    ));
    let mut tally = HistoryTally::default();
    let tasks = api.tasks("job").await;
    check_history(&mut tally, "job", &accepted, &tasks, &log);
    let late = |part| percentile(tasks.iter().map(late_ms), part);
    print_note(&format!(
        "{tally}; start after due p50 {} ms, p95 {} ms, at most {} ms",
        late(0.5),
        late(0.95),
        late(1.0)
    ));
}

async fn done(api: &FleetClient) -> u64 {
    let stats = api.stats("job").await;
    stats["by_state"]["succeeded"].as_u64().unwrap_or_default()
}

/// Submits tasks for `span`. Half of them are due at once, half of them one second later.
async fn submit_for(
    api: FleetClient,
    span: Duration,
) -> (BTreeMap<String, SubmittedTask>, usize, usize) {
    let since = Instant::now();
    let mut submits = JoinSet::new();
    let mut number = 0;
    while since.elapsed() < span {
        let api = api.clone();
        let delay_ms = if number % 2 == 0 { 0 } else { 1_000 };
        submits.spawn(async move {
            let id = new_id(&mut fastrand::Rng::new());
            let task = json!({"id": id, "delay_ms": delay_ms});
            let path = "jobs/job/tasks";
            let accepted = api
                .try_for(Method::POST, path, Some(&task), SUBMIT_MAX)
                .await;
            (id, accepted)
        });
        number += 1;
        let next = Duration::from_secs(1) * number / PER_SECOND;
        pause(next.saturating_sub(since.elapsed())).await;
    }
    let (mut accepted, mut refused, mut repeats) = (BTreeMap::new(), 0, 0);
    for (id, submitted) in submits.join_all().await {
        let Some(submitted) = submitted else {
            refused += 1;
            continue;
        };
        repeats += submitted.retries;
        let expected = SubmittedTask {
            is_logged: false,
            fails_once: false,
        };
        accepted.insert(id, expected);
    }
    (accepted, refused, repeats)
}
