//! A frontend without the other roles.

use dueline_tests_end_to_end::{RunLog, assert_stays, exec_job};
use dueline_tests_fleet::{FleetPlan, shared_machine};
use serde_json::json;

use crate::{fleet, s};

#[tokio::test(flavor = "multi_thread")]
async fn f_119_a_frontend_alone_accepts_and_shows_tasks_that_run_once_the_other_roles_start() {
    let _machine = shared_machine().await;
    let frontend_only = FleetPlan {
        consumers: 0,
        status_controllers: 0,
        controllers: 0,
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&frontend_only).await;
    let log = RunLog::new(fleet.resources().folder());
    let api = fleet.api().clone();
    api.put_job("job", exec_job(&log, "true"), json!({})).await;
    let now = api.submit("job", &json!({"payload": 7})).await;
    let soon = api.submit("job", &json!({"delay_ms": 100})).await;

    // A frontend refuses polls of workers.
    let poll = json!({"worker": "w@1", "jobs": ["job"]});
    let answer = api.at(0).post("work:next", &poll).await;
    assert!(answer.status >= 400, "{answer:?}");
    let task = api.task("job", &now).await;
    assert_eq!(
        (&task["payload"], &task["state"]),
        (&json!(7), &json!("enqueued"))
    );
    assert_stays("no run", s(3), async || {
        let states = [&now, &soon].map(async |id| api.task("job", id).await["state"].clone());
        let [now, soon] = states;
        match (log.begun().len(), now.await, soon.await) {
            (0, now, soon) if now == "enqueued" && soon == "new" => Ok(()),
            (runs, now, soon) => Err(format!("{runs} runs, {now} and {soon}")),
        }
    })
    .await;

    // The stored tasks run once the other roles are up.
    let rest = FleetPlan {
        frontends: 0,
        ..FleetPlan::default()
    };
    fleet.start_all(&rest).await;
    for id in [&now, &soon] {
        let task = api.finished("job", id, s(30)).await;
        assert_eq!(
            (&task["state"], &task["tries"]),
            (&json!("succeeded"), &json!(1)),
            "{task}"
        );
    }
    assert_eq!(log.begun().len(), 2);
}
