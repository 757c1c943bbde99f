//! Scheduled tasks.

use dueline_tests_end_to_end::{
    RunLog, ServerProcess, TestFolder, exec_job, print_note, wait_until,
};
use serde_json::json;

use crate::s;

#[tokio::test(flavor = "multi_thread")]
async fn f_009_f_127_a_scheduled_task_never_starts_early_and_rarely_late() {
    const TASKS: usize = 200;
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &[]).await;
    server
        .api
        .put_job("job", exec_job(&log, "true"), json!({}))
        .await;
    let mut rng = fastrand::Rng::with_seed(11);
    let delays = std::iter::repeat_with(|| rng.u64(200..6_000)).take(TASKS);
    let tasks: Vec<_> = delays.map(|delay| json!({"delay_ms": delay})).collect();
    let answer = server
        .api
        .post("jobs/job/tasks:batch", &json!(tasks))
        .await
        .expect_success();
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(TASKS));
    wait_until("all tasks to succeed", s(30), async || {
        let stats = server.api.stats("job").await;
        if stats["by_state"]["succeeded"] == TASKS {
            Ok(())
        } else {
            Err(stats.to_string())
        }
    })
    .await;
    let begun = log.begun();
    assert_eq!(begun.len(), TASKS);
    let mut late_ms: Vec<i64> = begun
        .iter()
        .map(|entry| entry.at_ms - entry.run_at_ms)
        .collect();
    late_ms.sort_unstable();
    let (early, p50, p99) = (late_ms[0], late_ms[TASKS / 2], late_ms[TASKS * 99 / 100]);
    print_note(&format!(
        "{TASKS} scheduled tasks, from due time to the first line of the command: p50 {p50} ms, p99 {p99} ms, most {} ms",
        late_ms[TASKS - 1]
    ));
    assert!(early >= 0, "a task started {} ms before its time", -early);
    assert!(p99 < 2_000, "p99 is {p99} ms");
}
