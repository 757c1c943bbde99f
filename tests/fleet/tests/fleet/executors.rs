//! Several executors of one controller.

use dueline_tests_end_to_end::{RunLog, exec_job, print_note, wait_until};
use dueline_tests_fleet::{FleetPlan, shared_machine};
use serde_json::json;
use tokio::time::Instant;

use crate::{fleet, s, words};

#[tokio::test(flavor = "multi_thread")]
async fn f_124_two_executors_run_eight_tasks_and_one_continues_when_the_other_is_killed() {
    let _machine = shared_machine().await;
    let plan = FleetPlan {
        executors: 2,
        executor_args: words("--concurrency 4"),
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&plan).await;
    let api = fleet.api().clone();
    let log = RunLog::new(fleet.resources().folder());
    let script = r#"if [ "$DUELINE_ATTEMPT" = 0 ]; then sleep 6; fi"#;
    api.put_job("job", exec_job(&log, script), json!({})).await;
    for _ in 0..8 {
        api.submit("job", &json!({})).await;
    }
    let in_flight = wait_until("eight tasks in flight", s(30), async || {
        let stats = api.stats("job").await;
        match log.begun() {
            begun if begun.len() == 8 && stats["by_state"]["processing"] == 8 => Ok(begun),
            _ => Err(stats.to_string()),
        }
    })
    .await;
    assert_eq!(log.done().len(), 0, "eight at once");
    let (dies, lives) = ("executor-0-0", "executor-0-1");
    for host in [dies, lives] {
        let runs = in_flight.iter().filter(|entry| entry.host == host).count();
        assert_eq!(runs, 4, "{in_flight:#?}");
    }
    fleet.kill(dies).await;
    let killed = Instant::now();
    api.count("job", "succeeded", 8, s(60)).await;
    print_note(&format!(
        "the four tasks of a killed executor were done elsewhere {:.1} s later",
        killed.elapsed().as_secs_f64()
    ));
    for task in api.tasks("job").await {
        let runs = log.begun_of(task["id"].as_str().unwrap());
        let expected = if runs[0].host == lives { 1 } else { 2 };
        assert_eq!(
            (runs.len(), &task["tries"]),
            (expected, &json!(expected)),
            "{task}"
        );
        assert!(
            runs[1..].iter().all(|entry| entry.host == lives),
            "{runs:?}"
        );
    }
}
