//! A frontend without anybody else.

use dueline_tests_end_to_end::{RunLog, exec_job, hold};
use dueline_tests_fleet::{Plan, with_others};
use serde_json::json;

use crate::{fleet, s};

#[tokio::test(flavor = "multi_thread")]
async fn f_119_a_frontend_alone_takes_and_shows_tasks_that_run_when_the_rest_comes() {
    let _turn = with_others().await;
    let nobody_else = Plan {
        consumers: 0,
        status_controllers: 0,
        controllers: 0,
        ..Plan::default()
    };
    let mut fleet = fleet(&nobody_else).await;
    let log = RunLog::new(fleet.site().place());
    let api = fleet.api().clone();
    api.put_job("job", exec_job(&log, "true"), json!({})).await;
    let now = api.submit("job", &json!({"payload": 7})).await;
    let soon = api.submit("job", &json!({"delay_ms": 100})).await;

    // It answers for work as a frontend does, that is not at all.
    let ask = json!({"worker": "w@1", "jobs": ["job"]});
    let answer = api.at(0).post("work:next", &ask).await;
    assert!(answer.status >= 400, "{answer:?}");
    let task = api.task("job", &now).await;
    assert_eq!(
        (&task["payload"], &task["state"]),
        (&json!(7), &json!("enqueued"))
    );
    hold("quiet", s(3), async || {
        let states = [&now, &soon].map(async |id| api.task("job", id).await["state"].clone());
        let [now, soon] = states;
        match (log.begun().len(), now.await, soon.await) {
            (0, now, soon) if now == "enqueued" && soon == "new" => Ok(()),
            (runs, now, soon) => Err(format!("{runs} runs, {now} and {soon}")),
        }
    })
    .await;

    // They had only been waiting.
    let rest = Plan {
        frontends: 0,
        ..Plan::default()
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
