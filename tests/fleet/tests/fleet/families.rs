//! Families on a fleet: consumers and executors that die lose no member and run nothing too early.

use dueline_tests_end_to_end::{pause, print_note};
use dueline_tests_fleet::{FleetPlan, FleetRole, millis, shared_machine};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{fleet, s};

const CHILDREN: usize = 300;

fn id(number: usize) -> String {
    format!("0197b0c4-0000-7000-8000-{number:012}")
}

#[tokio::test(flavor = "multi_thread")]
async fn f_093_f_094_f_095_a_fleet_runs_a_family_though_a_consumer_and_an_executor_are_killed() {
    let _machine = shared_machine().await;
    let plan = FleetPlan {
        consumers: 2,
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&plan).await;
    fleet.api().put_noop("job", json!({})).await;
    let parent = json!({"id": id(0)});
    let mut tasks = vec![parent.clone(), json!({"id": id(1), "after": [parent]})];
    for number in 0..CHILDREN {
        tasks.push(json!({"id": id(1_000 + number), "parent": {"id": id(0)}}));
    }
    let begun = Instant::now();
    let path = "jobs/job/tasks:batch";
    let batch = fleet.api().at(0).post(path, &json!(tasks)).await;
    batch.expect_success();
    pause(s(1)).await;
    for role in [FleetRole::Consumer, FleetRole::Executor] {
        let name = fleet.names(role).remove(0);
        fleet.kill(&name).await;
        pause(s(1)).await;
        fleet.start_again(&name).await;
    }
    let last = fleet.api().finished("job", &id(1), s(150)).await;
    assert_eq!(last["state"], "succeeded", "{last}");
    print_note(&format!(
        "{CHILDREN} children, a consumer and an executor killed: the follower ended after {:.1?}",
        begun.elapsed()
    ));
    let all = fleet.api().tasks("job").await;
    assert_eq!(all.len(), CHILDREN + 2);
    let find = |number: usize| -> &Value {
        let id = id(number);
        let mut found = all.iter().filter(|task| task["id"] == id.as_str());
        found.next().expect("the task")
    };
    let parent_end = millis(&find(0)["finished_at"]);
    let last_start = millis(&find(1)["started_at"]);
    for number in 0..CHILDREN {
        let child = find(1_000 + number);
        assert_eq!(child["state"], "succeeded", "{child}");
        // Processes share the clock of this machine.
        assert!(millis(&child["started_at"]) >= parent_end, "{child}");
        assert!(millis(&child["finished_at"]) <= last_start, "{child}");
    }
}
