//! A backlog of one job does not delay other jobs.

use std::time::Duration;

use dueline_tests_end_to_end::{RunLog, exec_job, pause, print_note};
use dueline_tests_fleet::{
    FleetClient, FleetPlan, FleetRole, exclusive_machine, late_ms, millis, number, percentile,
    shared_machine,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{fleet, s, words};

const FLOOD: usize = 10_000;
const FLOOD_BATCH: usize = 1_000;
/// Tasks of the other job in one measurement.
const PROBES: usize = 100;
/// Pause between two of them.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Time from the submit of the second half of the flood until it is due.
const DUE_IN: Duration = Duration::from_secs(10);
/// The limit of F-127: two seconds and the poll period, here with all processes on one machine.
const LATE_MAX_MS: i64 = 3_000;
/// The flood takes at least this many times longer to be enqueued than the other job is delayed.
const RATIO_MIN: i64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn f_121_f_125_ten_thousand_due_tasks_of_one_job_do_not_delay_another() {
    let _machine = exclusive_machine().await;
    let none = FleetPlan {
        controllers: 0,
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&none).await;
    let log = RunLog::new(fleet.resources().folder());
    // One host serves the flood; its only slot is busy for longer than this test. Another host serves the other job.
    for (number, job) in ["flood", "calm"].into_iter().enumerate() {
        fleet.start_controller(number, &["--jobs", job]).await;
    }
    fleet.start_executor(0, 0, &words("--concurrency 1")).await;
    fleet.start_executor(1, 0, &words("--concurrency 8")).await;
    let api = fleet.api().clone();
    // A timeout so short that the watchdog has to process the whole flood, too.
    let short = json!({"enqueue_timeout_ms": 15_000});
    let stuck = exec_job(&log, "sleep 300");
    api.put_job("flood", stuck, short).await;
    api.put_noop("calm", json!({})).await;
    // From here on both hosts serve their jobs.
    let first = api.submit("calm", &json!({})).await;
    api.finished("calm", &first, s(30)).await;
    probe(&api).await;

    let before = probe(&api).await;
    let now = json!({});
    for _ in 0..FLOOD / FLOOD_BATCH / 2 {
        api.submit_all("flood", vec![now.clone(); FLOOD_BATCH], s(60))
            .await;
    }
    // The second half becomes due at one time, during the measurement.
    let due = json!({"delay_ms": DUE_IN.as_millis()});
    let submitted = Instant::now();
    for _ in 0..FLOOD / FLOOD_BATCH / 2 {
        api.submit_all("flood", vec![due.clone(); FLOOD_BATCH], s(60))
            .await;
    }
    let (during, flood) = tokio::join!(probe(&api), async {
        // The whole flood was enqueued, and only one of its tasks was running.
        api.count("flood", "enqueued", FLOOD - 1, s(300)).await;
        let took = submitted.elapsed().saturating_sub(DUE_IN);
        i64::try_from(took.as_millis()).unwrap()
    });
    let after = probe(&api).await;
    print_note(&format!(
        "start after due, p95 of {PROBES}: {before} ms without the flood, {during} ms while {FLOOD} tasks of another job became due, \
         which took {flood} ms to be enqueued, and {after} ms beside them"
    ));
    for flooded in [during, after] {
        assert!(
            flooded <= LATE_MAX_MS,
            "delayed from {before} ms to {flooded} ms"
        );
        assert!(
            flooded * RATIO_MIN <= flood,
            "{flooded} ms behind {flood} ms"
        );
    }
    let stats = api.stats("flood").await;
    assert_eq!(number(&stats["by_state"]["processing"]), 1, "{stats}");
}

/// Most tasks of the limited job that may run at once, and how many are submitted.
const LIMIT: usize = 4;
const LIMITED: usize = 48;

#[tokio::test(flavor = "multi_thread")]
async fn g_07_a_fleet_runs_no_more_tasks_of_a_job_at_once_than_its_limit() {
    let _machine = shared_machine().await;
    let plan = FleetPlan {
        consumers: 2,
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&plan).await;
    let log = RunLog::new(fleet.resources().folder());
    let limit = json!({"quota": {"running_max": LIMIT}});
    fleet
        .api()
        .put_job("limited", exec_job(&log, "sleep 0.4"), limit)
        .await;
    let api = fleet.api().clone();
    api.submit_all("limited", vec![json!({}); LIMITED], s(60))
        .await;
    pause(s(1)).await;
    let consumer = fleet.names(FleetRole::Consumer).remove(0);
    fleet.kill(&consumer).await;
    pause(s(1)).await;
    fleet.start_again(&consumer).await;
    api.count("limited", "succeeded", LIMITED, s(150)).await;

    // Processes share the clock of this machine.
    let mut changes = Vec::new();
    let tasks = api.tasks("limited").await;
    assert_eq!(tasks.len(), LIMITED);
    for task in &tasks {
        changes.push((millis(&task["started_at"]), 1));
        changes.push((millis(&task["finished_at"]), -1));
    }
    changes.sort_unstable();
    let (mut running, mut most) = (0_i64, 0);
    for (_, change) in changes {
        running += change;
        most = most.max(running);
    }
    assert_eq!(most, i64::try_from(LIMIT).unwrap());
}

/// Tasks of the noisy key, most running tasks of a key, and tasks of the quiet key.
const NOISY: usize = 400;
const KEY_LIMIT: usize = 3;
const QUIET: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn g_07_fairness_keys_take_turns_on_a_fleet_and_none_exceeds_its_limit() {
    let _machine = shared_machine().await;
    let plan = FleetPlan {
        consumers: 2,
        ..FleetPlan::default()
    };
    let mut fleet = fleet(&plan).await;
    let log = RunLog::new(fleet.resources().folder());
    let share = json!({"fair_share": {"running_max": KEY_LIMIT}});
    fleet
        .api()
        .put_job("shared", exec_job(&log, "sleep 0.4"), share)
        .await;
    let api = fleet.api().clone();
    let noisy = json!({"fairness_key": "noisy"});
    api.submit_all("shared", vec![noisy; NOISY], s(60)).await;
    pause(s(2)).await;
    let consumer = fleet.names(FleetRole::Consumer).remove(0);
    let mut late = Vec::new();
    for number in 0..QUIET {
        if number == 3 {
            fleet.kill(&consumer).await;
        }
        if number == 8 {
            fleet.start_again(&consumer).await;
        }
        let quiet = json!({"fairness_key": "quiet"});
        let id = api.submit("shared", &quiet).await;
        let task: Value = api.finished("shared", &id, s(60)).await;
        assert_eq!(task["fairness_key"], "quiet", "{task}");
        late.push(late_ms(&task));
    }
    let waiting = number(&api.stats("shared").await["by_state"]["new"]);
    print_note(&format!(
        "start after due of {QUIET} tasks of a quiet key, while {waiting} of another one wait: {late:?} ms"
    ));
    assert!(waiting > 0, "the noisy key has nothing left that waits");
    // A consumer polls each second; the share of one that dies is taken over after its lease.
    let median = percentile(late, 0.5);
    assert!(median <= 2_500, "{median} ms");

    let mut changes = Vec::new();
    for task in api.tasks("shared").await {
        if task["fairness_key"] == "noisy" && !task["started_at"].is_null() {
            changes.push((millis(&task["started_at"]), 1));
            if !task["finished_at"].is_null() {
                changes.push((millis(&task["finished_at"]), -1));
            }
        }
    }
    changes.sort_unstable();
    let (mut running, mut most) = (0_i64, 0);
    for (_, change) in changes {
        running += change;
        most = most.max(running);
    }
    assert_eq!(most, i64::try_from(KEY_LIMIT).unwrap());
}

/// Submits tasks that become due one by one, and returns how late they began (p95).
async fn probe(api: &FleetClient) -> i64 {
    let since = Instant::now();
    let mut ids = Vec::with_capacity(PROBES);
    for number in 0..PROBES {
        let at = PROBE_EVERY * u32::try_from(number).unwrap_or(u32::MAX);
        pause(at.saturating_sub(since.elapsed())).await;
        ids.push(api.submit("calm", &json!({"delay_ms": 1_000})).await);
    }
    let mut late = Vec::with_capacity(PROBES);
    for id in ids {
        let task: Value = api.finished("calm", &id, s(60)).await;
        assert_eq!(task["state"], "succeeded", "{task}");
        late.push(late_ms(&task));
    }
    percentile(late, 0.95)
}
