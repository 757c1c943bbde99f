//! The time from due to begun.

use std::time::Duration;

use dueline_tests_end_to_end::{pause, print_note};
use dueline_tests_fleet::{FleetClient, FleetPlan, exclusive_machine, late_ms, percentile};
use serde_json::json;
use tokio::time::Instant;

use crate::{fleet, s, words};

const TASKS: u32 = 500;
const PER_SECOND: u32 = 25;
/// Shorter than the poll period, so that the next scan enqueues the task.
const DELAYS_MS: std::ops::Range<u32> = 50..250;

#[tokio::test(flavor = "multi_thread")]
async fn f_127_latency_follows_the_poll_period() {
    let _machine = exclusive_machine().await;
    let mut p95 = Vec::new();
    for poll_ms in [2_000, 1_000] {
        let plan = FleetPlan {
            consumer_args: words(&format!("--set scheduler.poll_period_ms={poll_ms}")),
            ..FleetPlan::default()
        };
        let fleet = fleet(&plan).await;
        let api = fleet.api();
        api.put_noop("job", json!({})).await;
        let first = api.submit("job", &json!({"delay_ms": 1})).await;
        api.finished("job", &first, s(30)).await;
        let late = open_loop(api).await;
        print_note(&format!(
            "{PER_SECOND} scheduled tasks a second, poll period {poll_ms} ms: start - due p50 {} ms, p95 {} ms",
            percentile(late.clone(), 0.5),
            percentile(late.clone(), 0.95)
        ));
        p95.push((poll_ms, percentile(late, 0.95)));
    }
    for (poll_ms, late) in &p95 {
        assert!(*late <= 2_000 + poll_ms, "{p95:?}");
    }
    assert!(p95[1].1 < p95[0].1, "{p95:?}");
}

/// Submits at a fixed rate without waiting for answers. Returns how late each task began.
async fn open_loop(api: &FleetClient) -> Vec<i64> {
    let since = Instant::now();
    let mut submits = tokio::task::JoinSet::new();
    for number in 0..TASKS {
        let at = Duration::from_secs(1) * number / PER_SECOND;
        pause(at.saturating_sub(since.elapsed())).await;
        let api = api.clone();
        let delay_ms = fastrand::u32(DELAYS_MS);
        submits.spawn(async move { api.submit("job", &json!({"delay_ms": delay_ms})).await });
    }
    submits.join_all().await;
    api.count("job", "succeeded", TASKS as usize + 1, s(60))
        .await;
    let mut tasks = api.tasks("job").await;
    // The list is newest first; its last entry is the warm-up task.
    tasks.pop();
    tasks.iter().map(late_ms).collect()
}
