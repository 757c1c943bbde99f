//! Fairness keys that take turns, as commands of a real server that is killed.

use std::collections::BTreeMap;

use dueline_tests_end_to_end::{ServerProcess, TestFolder, print_note};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::s;

/// Tasks of the noisy key, and how many tasks of a key may run at once.
const NOISY: usize = 300;
const KEY_LIMIT: usize = 2;

/// A time of a task. All have the same number of digits, so they sort as texts.
fn time(task: &Value, name: &str) -> Option<String> {
    Some(task[name].as_str()?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn g_07_a_quiet_key_passes_the_backlog_of_a_noisy_one_also_after_a_kill() {
    let folder = TestFolder::new();
    let mut server = ServerProcess::start(&folder, &["--concurrency", "4"]).await;
    let spec = json!({
        "handler": {"kind": "exec", "config": {"command": ["sleep", "0.1"]}},
        "fair_share": {"running_max": KEY_LIMIT},
    });
    server.api.put_job("render", spec, json!({})).await;
    for _ in 0..NOISY {
        server
            .api
            .submit(
                "render",
                json!({"fairness_key": "noisy", "priority": "high"}),
            )
            .await;
    }
    let mut waits = Vec::new();
    for number in 0..12 {
        if number == 6 {
            server.kill().await;
            server.start_again().await;
        }
        let begun = Instant::now();
        let quiet = json!({"fairness_key": "quiet", "priority": "low"});
        let id = server.api.submit("render", quiet).await;
        server.api.finished("render", &id, s(30)).await;
        waits.push(begun.elapsed().as_millis());
    }
    let tasks = server.api.tasks("render").await;
    let mut by_state = BTreeMap::new();
    for task in tasks.iter().filter(|task| task["fairness_key"] == "noisy") {
        *by_state.entry(task["state"].to_string()).or_insert(0_usize) += 1;
    }
    print_note(&format!(
        "a quiet key's tasks of 100 ms took {waits:?} ms beside a noisy key: {by_state:?}"
    ));
    // All of them were due before the first quiet one, and of a higher priority.
    let waiting = by_state.get("\"new\"").copied().unwrap_or(0);
    assert!(waiting > 100, "{by_state:?}");

    // Of each key no more than two ran at once; the runs that the kill ended have no end.
    let mut changes = Vec::new();
    for task in &tasks {
        if task["fairness_key"] == "noisy"
            && let (Some(began), Some(ended)) =
                (time(task, "started_at"), time(task, "finished_at"))
        {
            changes.extend([(began, 1), (ended, -1)]);
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
