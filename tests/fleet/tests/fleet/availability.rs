//! Always possible to schedule and to execute.

use std::{collections::BTreeMap, time::Duration};

use dueline_tests_end_to_end::{RunLog, new_id, pause, say};
use dueline_tests_fleet::{
    Api, Plan, Role, Tally, Wanted, check_history, late_ms, percentile, with_others,
};
use reqwest::Method;
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{fleet, s, words};

const PER_SECOND: u32 = 20;
/// A process stays dead for so long, then it is back, and the next role has its turn.
const DOWN: Duration = Duration::from_secs(3);
const UP: Duration = Duration::from_secs(2);
/// A client gives up after this.
const SUBMIT_MAX: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn f_129_submits_are_accepted_and_tasks_run_while_one_of_each_service_dies_in_turn() {
    let _turn = with_others().await;
    let plan = Plan {
        frontends: 2,
        consumers: 2,
        status_controllers: 2,
        controllers: 2,
        executor_args: words("--concurrency 4"),
        // What a killed controller had comes back after this, and what the engine hands to its dead polls.
        queue_options: "visibility_timeout_s=10",
        ..Plan::default()
    };
    let mut fleet = fleet(&plan).await;
    let api = fleet.api().clone();
    let log = RunLog::new(fleet.site().place());
    // What a process had marked and not sent when it died comes back after this.
    let policy = json!({"retries_max": 20, "enqueue_timeout_ms": 10_000});
    api.put_noop("job", policy).await;

    let turns = u32::try_from(Role::ALL.len()).unwrap();
    let span = (DOWN + UP) * turns;
    let mut submits = JoinSet::new();
    submits.spawn(submit_for(api.clone(), span));
    for role in Role::ALL {
        let name = fleet.names(role).swap_remove(0);
        let done_before = done(&api).await;
        fleet.kill(&name).await;
        pause(DOWN).await;
        // Others of its kind do its work meanwhile.
        assert!(done(&api).await > done_before, "nothing ran without {name}");
        fleet.start_again(&name).await;
        pause(UP).await;
    }
    let (accepted, refused, repeats) = submits.join_next().await.unwrap().expect("all submits");
    say(&format!(
        "one of each service killed in turn: {} submits accepted, {refused} not; {repeats} calls repeated",
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
    say(&format!(
        "all of them had run {:.1} s after the last kill",
        (UP + since.elapsed()).as_secs_f64()
    ));
    let mut tally = Tally::default();
    let tasks = api.tasks("job").await;
    check_history(&mut tally, "job", &accepted, &tasks, &log);
    let late = |part| percentile(tasks.iter().map(late_ms), part);
    say(&format!(
        "{tally}; start after due p50 {} ms, p95 {} ms, at most {} ms",
        late(0.5),
        late(0.95),
        late(1.0)
    ));
}

async fn done(api: &Api) -> u64 {
    let stats = api.stats("job").await;
    stats["by_state"]["succeeded"].as_u64().unwrap_or_default()
}

/// Half of the tasks are due at once, half a second later.
async fn submit_for(api: Api, span: Duration) -> (BTreeMap<String, Wanted>, usize, usize) {
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
        let wanted = Wanted {
            is_marked: false,
            fails_once: false,
        };
        accepted.insert(id, wanted);
    }
    (accepted, refused, repeats)
}
