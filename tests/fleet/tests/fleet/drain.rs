//! Shutdown of every role within its deadline.

use std::{collections::BTreeMap, time::Duration};

use dueline_tests_end_to_end::{RunLog, exec_job, new_id, pause, print_note, wait_until};
use dueline_tests_fleet::{
    Fleet, FleetClient, FleetPlan, FleetRole, HistoryTally, SubmittedTask, check_history, number,
    shared_machine,
};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{fleet, s, words};

/// Deadline for every role; longer than the default grace.
const DEADLINE: Duration = Duration::from_secs(15);
const TASKS: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn f_146_every_role_shuts_down_in_order_when_it_is_asked_to_and_nothing_runs_twice() {
    let _machine = shared_machine().await;
    let plan = FleetPlan {
        frontends: 2,
        consumers: 2,
        status_controllers: 2,
        controllers: 2,
        executor_args: words("--concurrency 4"),
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&plan).await;
    let api = fleet.api().clone();
    let log = RunLog::new(fleet.resources().folder());
    api.put_job("job", exec_job(&log, "sleep 0.2"), json!({}))
        .await;
    let mut submits = JoinSet::new();
    submits.spawn(submit_all(api.clone()));
    for role in FleetRole::ALL {
        let name = fleet.names(role).swap_remove(0);
        wait_until("runs", s(30), async || {
            match log.begun().len() - log.done().len() {
                0 => Err(String::new()),
                _ => Ok(()),
            }
        })
        .await;
        assert_stops(&mut fleet, &name, 0).await;
        pause(s(1)).await;
        fleet.start_again(&name).await;
    }
    let accepted = submits.join_next().await.unwrap().expect("all submits");
    api.count("job", "succeeded", TASKS, s(60)).await;
    let mut tally = HistoryTally::default();
    check_history(&mut tally, "job", &accepted, &api.tasks("job").await, &log);
    print_note(&format!("every role shut down in order: {tally}"));
    assert_eq!(
        (tally.lost, tally.expired, tally.repeats),
        (0, 0, 0),
        "{tally}"
    );
}

/// Sends `SIGTERM` to a process and expects this exit code within the deadline.
async fn assert_stops(fleet: &mut Fleet, name: &str, code: i32) {
    let asked = Instant::now();
    let status = fleet.stop(name, DEADLINE).await;
    print_note(&format!(
        "{name} ended {:.1} s after SIGTERM",
        asked.elapsed().as_secs_f64()
    ));
    let log = fleet.member(name).process().log();
    assert_eq!(status.code(), Some(code), "{name}\n{log}");
}

/// Submits tasks at a rate that keeps the executors busy while processes shut down.
async fn submit_all(api: FleetClient) -> BTreeMap<String, SubmittedTask> {
    let mut rng = fastrand::Rng::new();
    let mut accepted = BTreeMap::new();
    let since = Instant::now();
    for number in 0..TASKS {
        let id = new_id(&mut rng);
        api.submit("job", &json!({"id": id})).await;
        let expected = SubmittedTask {
            is_logged: true,
            fails_once: false,
        };
        accepted.insert(id, expected);
        let next = Duration::from_millis(50) * u32::try_from(number).unwrap_or(u32::MAX);
        pause(next.saturating_sub(since.elapsed())).await;
    }
    accepted
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_runs_longer_than_the_grace_of_an_executor_are_abandoned_and_run_again() {
    let _machine = shared_machine().await;
    let plan = FleetPlan {
        executor_args: words("--concurrency 2 --set shutdown.grace_ms=500"),
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&plan).await;
    let api = fleet.api().clone();
    let log = RunLog::new(fleet.resources().folder());
    let go = fleet.resources().folder().file("go");
    let script = format!("if [ ! -e '{}' ]; then sleep 60; fi", go.display());
    api.put_job("job", exec_job(&log, &script), json!({})).await;
    let ids = [
        api.submit("job", &json!({})).await,
        api.submit("job", &json!({})).await,
    ];
    wait_until("two runs", s(30), async || match log.begun().len() {
        2 => Ok(()),
        runs => Err(runs.to_string()),
    })
    .await;
    assert_stops(&mut fleet, "executor-0-0", 10).await;
    std::fs::write(&go, "").expect("a file");
    let restarted = Instant::now();
    fleet.start_again("executor-0-0").await;
    for id in &ids {
        let task = api.finished("job", id, s(30)).await;
        assert_eq!(task["state"], "succeeded", "{task}");
        assert_eq!(task["runs"][0]["end"], "abandoned", "{task}");
        assert_eq!(number(&task["tries"]), 1, "{task}");
    }
    // The tasks were abandoned, so no lease had to expire.
    assert!(restarted.elapsed() < s(7), "{:?}", restarted.elapsed());
    assert_eq!(log.begun().len(), 4);
}
