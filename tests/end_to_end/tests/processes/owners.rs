//! A database file has one owner process.

use dueline_tests_end_to_end::{RunLog, ServerProcess, TestFolder, exec_job, run_dueline};
use serde_json::json;

use crate::s;

#[tokio::test(flavor = "multi_thread")]
async fn a_33_d_08_a_second_server_on_the_same_file_is_refused_with_the_owner_named() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &[]).await;
    server
        .api
        .put_job("job", exec_job(&log, "sleep 2"), json!({}))
        .await;
    let id = server.api.submit("job", json!({})).await;
    server.api.in_state("job", &id, "processing", s(20)).await;

    let store = folder.store().display().to_string();
    let second = run_dueline(
        &folder,
        &["serve", "--data", &store, "--listen", "127.0.0.1:0"],
    )
    .await;
    assert_eq!(second.code, Some(4), "{second:?}");
    let owner = format!("in use by process {};", server.process().pid());
    let error = second
        .stderr
        .lines()
        .find(|line| line.starts_with("error: "));
    assert!(
        error.is_some_and(|line| line.contains(&owner)),
        "{second:?}"
    );

    // The owner's task continued undisturbed.
    let task = server.api.finished("job", &id, s(20)).await;
    assert_eq!(
        (&task["state"], &task["tries"]),
        (&json!("succeeded"), &json!(1)),
        "{task}"
    );
    assert_eq!(log.begun().len(), 1);
}
