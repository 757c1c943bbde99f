//! Schedules on a fleet: consumers share them, and one that dies loses no firing and doubles none.

use std::collections::BTreeMap;

use dueline_tests_end_to_end::{pause, print_note};
use dueline_tests_fleet::{FleetPlan, FleetRole, late_ms, percentile, shared_machine, text};
use serde_json::json;

use crate::{fleet, s};

const SCHEDULES: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn f_100_g_05_a_fleet_fires_each_schedule_once_though_a_consumer_is_killed() {
    let _machine = shared_machine().await;
    let plan = FleetPlan {
        consumers: 2,
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&plan).await;
    fleet.api().put_noop("job", json!({})).await;
    for number in 0..SCHEDULES {
        let path = format!("jobs/job/schedules/s{number}");
        let schedule = json!({
            "timing": "@every 2s", "overlap": "allow", "catch_up": "all", "catch_up_max": 1000,
        });
        let put = fleet.api().at(0).put(&path, &schedule).await;
        put.expect_success();
    }
    pause(s(7)).await;
    let consumer = fleet.names(FleetRole::Consumer).remove(0);
    fleet.kill(&consumer).await;
    pause(s(9)).await;
    fleet.start_again(&consumer).await;
    pause(s(6)).await;
    for number in 0..SCHEDULES {
        let path = format!("jobs/job/schedules/s{number}/pause");
        let paused = fleet.api().at(0).post(&path, &json!({})).await;
        paused.expect_success();
    }
    pause(s(3)).await;
    let tasks = fleet.api().tasks("job").await;
    let mut by_schedule: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for task in &tasks {
        let times = by_schedule.entry(text(&task["schedule"])).or_default();
        times.push(dueline_tests_fleet::millis(&task["nominal_at"]));
    }
    assert_eq!(by_schedule.len(), SCHEDULES);
    for (schedule, times) in &mut by_schedule {
        times.sort_unstable();
        assert!(times.len() >= 9, "{schedule}: {times:?}");
        let steps = times.windows(2).map(|pair| pair[1] - pair[0]);
        let wrong: Vec<i64> = steps.filter(|step| *step != 2_000).collect();
        assert!(wrong.is_empty(), "{schedule}: {times:?}");
    }
    fleet
        .api()
        .count("job", "succeeded", tasks.len(), s(60))
        .await;
    let late: Vec<i64> = fleet.api().tasks("job").await.iter().map(late_ms).collect();
    print_note(&format!(
        "{} firings of {SCHEDULES} schedules, one of two consumers killed: start - due p50 {} ms, p95 {} ms",
        late.len(),
        percentile(late.clone(), 0.5),
        percentile(late, 0.95)
    ));
}
