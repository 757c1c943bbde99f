//! One job's flood is no other job's business.

use std::time::Duration;

use dueline_tests_end_to_end::{RunLog, exec_job, pause, say};
use dueline_tests_fleet::{Api, Plan, alone, late_ms, number, percentile};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{fleet, s, words};

const FLOOD: usize = 10_000;
const FLOOD_BATCH: usize = 1_000;
/// Tasks of the other job in one measurement.
const PROBES: usize = 100;
/// Between two of them.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// When the second half of the flood comes due, from when it is submitted.
const DUE_IN: Duration = Duration::from_secs(10);
/// What F-127 allows: two seconds and the poll period, here on a machine that does all of this at once.
const LATE_MAX_MS: i64 = 3_000;
/// The flood waits for itself so many times longer than the other job waits for the flood.
const RATIO_MIN: i64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn f_121_f_125_ten_thousand_due_tasks_of_one_job_do_not_delay_another() {
    let _turn = alone().await;
    let none = Plan {
        controllers: 0,
        ..Plan::default()
    };
    let mut fleet = fleet(&none).await;
    let log = RunLog::new(fleet.site().place());
    // One host serves one job and its only slot is taken for longer than this test lasts; another host serves the other.
    for (number, job) in ["flood", "calm"].into_iter().enumerate() {
        fleet.start_controller(number, &["--jobs", job]).await;
    }
    fleet.start_executor(0, 0, &words("--concurrency 1")).await;
    fleet.start_executor(1, 0, &words("--concurrency 8")).await;
    let api = fleet.api().clone();
    // A timeout so short that the watchdog has them all to look at, too.
    let short = json!({"enqueue_timeout_ms": 15_000});
    let stuck = exec_job(&log, "sleep 300");
    api.put_job("flood", stuck, short).await;
    api.put_noop("calm", json!({})).await;
    // Both hosts have found their jobs.
    let first = api.submit("calm", &json!({})).await;
    api.finished("calm", &first, s(30)).await;
    probe(&api).await;

    let before = probe(&api).await;
    let now = json!({});
    for _ in 0..FLOOD / FLOOD_BATCH / 2 {
        api.submit_all("flood", vec![now.clone(); FLOOD_BATCH], s(60))
            .await;
    }
    // The other half comes due at one moment, in the middle of the measurement.
    let due = json!({"delay_ms": DUE_IN.as_millis()});
    let submitted = Instant::now();
    for _ in 0..FLOOD / FLOOD_BATCH / 2 {
        api.submit_all("flood", vec![due.clone(); FLOOD_BATCH], s(60))
            .await;
    }
    let (during, flood) = tokio::join!(probe(&api), async {
        // They really were in the way, all of them, and none had gone.
        api.count("flood", "enqueued", FLOOD - 1, s(120)).await;
        let took = submitted.elapsed().saturating_sub(DUE_IN);
        i64::try_from(took.as_millis()).unwrap()
    });
    let after = probe(&api).await;
    say(&format!(
        "start after due, p95 of {PROBES}: {before} ms alone, {during} ms while {FLOOD} tasks of another job came due, \
         which took {flood} ms to be handed on, and {after} ms beside them"
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

/// Tasks that come due one by one; how late they began.
async fn probe(api: &Api) -> i64 {
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
