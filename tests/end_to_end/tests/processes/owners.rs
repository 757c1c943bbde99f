//! One process owns a file.

use dueline_tests_end_to_end::{Place, RunLog, Server, ended, exec_job};
use serde_json::json;

use crate::s;

#[tokio::test(flavor = "multi_thread")]
async fn a_33_d_08_a_second_server_on_the_same_file_is_refused_and_told_who_owns_it() {
    let place = Place::new();
    let log = RunLog::new(&place);
    let server = Server::start(&place, &[]).await;
    server
        .api
        .put_job("job", exec_job(&log, "sleep 2"), json!({}))
        .await;
    let id = server.api.submit("job", json!({})).await;
    server.api.in_state("job", &id, "processing", s(20)).await;

    let store = place.store().display().to_string();
    let second = ended(
        &place,
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

    // The owner's work went on undisturbed.
    let task = server.api.finished("job", &id, s(20)).await;
    assert_eq!(
        (&task["state"], &task["tries"]),
        (&json!("succeeded"), &json!(1)),
        "{task}"
    );
    assert_eq!(log.begun().len(), 1);
}
