//! Orderly ends of every role, within a deadline.

use std::{collections::BTreeMap, time::Duration};

use dueline_tests_end_to_end::{RunLog, exec_job, new_id, pause, say, wait_until};
use dueline_tests_fleet::{
    Api, Fleet, Plan, Role, Tally, Wanted, check_history, number, with_others,
};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{fleet, s, words};

/// Every role has this long; it is more than the default grace.
const DEADLINE: Duration = Duration::from_secs(15);
const TASKS: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn f_146_every_role_ends_in_order_when_it_is_asked_to_and_nothing_runs_twice() {
    let _turn = with_others().await;
    let plan = Plan {
        frontends: 2,
        consumers: 2,
        status_controllers: 2,
        controllers: 2,
        executor_args: words("--concurrency 4"),
        ..Plan::default()
    };
    let mut fleet = fleet(&plan).await;
    let api = fleet.api().clone();
    let log = RunLog::new(fleet.site().place());
    api.put_job("job", exec_job(&log, "sleep 0.2"), json!({}))
        .await;
    let mut submits = JoinSet::new();
    submits.spawn(submit_all(api.clone()));
    for role in Role::ALL {
        let name = fleet.names(role).swap_remove(0);
        wait_until("runs", s(30), async || {
            match log.begun().len() - log.done().len() {
                0 => Err(String::new()),
                _ => Ok(()),
            }
        })
        .await;
        stops(&mut fleet, &name, 0).await;
        pause(s(1)).await;
        fleet.start_again(&name).await;
    }
    let accepted = submits.join_next().await.unwrap().expect("all submits");
    api.count("job", "succeeded", TASKS, s(60)).await;
    let mut tally = Tally::default();
    check_history(&mut tally, "job", &accepted, &api.tasks("job").await, &log);
    say(&format!("every role ended in order: {tally}"));
    assert_eq!(
        (tally.lost, tally.expired, tally.repeats),
        (0, 0, 0),
        "{tally}"
    );
}

/// Asks a process to stop; it ends with this code before its deadline.
async fn stops(fleet: &mut Fleet, name: &str, code: i32) {
    let asked = Instant::now();
    let status = fleet.stop(name, DEADLINE).await;
    say(&format!(
        "{name} ended {:.1} s after SIGTERM",
        asked.elapsed().as_secs_f64()
    ));
    let log = fleet.member(name).process().log();
    assert_eq!(status.code(), Some(code), "{name}\n{log}");
}

/// At a rate that keeps the executors busy while processes end.
async fn submit_all(api: Api) -> BTreeMap<String, Wanted> {
    let mut rng = fastrand::Rng::new();
    let mut accepted = BTreeMap::new();
    let since = Instant::now();
    for number in 0..TASKS {
        let id = new_id(&mut rng);
        api.submit("job", &json!({"id": id})).await;
        let wanted = Wanted {
            is_marked: true,
            fails_once: false,
        };
        accepted.insert(id, wanted);
        let next = Duration::from_millis(50) * u32::try_from(number).unwrap_or(u32::MAX);
        pause(next.saturating_sub(since.elapsed())).await;
    }
    accepted
}

#[tokio::test(flavor = "multi_thread")]
async fn f_146_what_outlasts_the_grace_of_an_executor_is_given_back_and_runs_elsewhere() {
    let _turn = with_others().await;
    let plan = Plan {
        executor_args: words("--concurrency 2 --set shutdown.grace_ms=500"),
        ..Plan::default()
    };
    let mut fleet = fleet(&plan).await;
    let api = fleet.api().clone();
    let log = RunLog::new(fleet.site().place());
    let go = fleet.site().place().file("go");
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
    stops(&mut fleet, "executor-0-0", 10).await;
    std::fs::write(&go, "").expect("a file");
    let back = Instant::now();
    fleet.start_again("executor-0-0").await;
    for id in &ids {
        let task = api.finished("job", id, s(30)).await;
        assert_eq!(task["state"], "succeeded", "{task}");
        assert_eq!(task["runs"][0]["end"], "abandoned", "{task}");
        assert_eq!(number(&task["tries"]), 1, "{task}");
    }
    // They were given back, so no lease had to lapse.
    assert!(back.elapsed() < s(7), "{:?}", back.elapsed());
    assert_eq!(log.begun().len(), 4);
}
