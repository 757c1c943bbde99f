//! Processes that register with their kind, and are gone when they die.

use dueline_tests_end_to_end::{ChildProcess, ServerProcess, TestFolder, run_dueline, wait_until};
use serde_json::Value;

use crate::s;

async fn of_kind(server: &ServerProcess<'_>, kind: &str) -> Vec<Value> {
    let path = format!("workers?kind={kind}");
    let answer = server.api.get(&path).await.expect_success();
    answer["workers"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn f_091_a_registered_process_is_listed_and_gone_after_its_lease_when_it_is_killed() {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let args = |name: &str| {
        let words = [
            "worker",
            "register",
            name,
            "--kind",
            "controller",
            "--meta",
            "zone=a",
        ];
        let mut args: Vec<String> = words.map(str::to_owned).to_vec();
        args.extend(["--server".to_owned(), server.url().to_owned()]);
        args
    };
    let mut killed = ChildProcess::dueline(&folder, "killed", &args("h1"));
    let id = killed.line_after("registered as ").await.unwrap();
    assert!(id.starts_with("h1@"), "{id}");
    let mut stopped = ChildProcess::dueline(&folder, "stopped", &args("h2"));
    stopped.line_after("registered as ").await.unwrap();
    let controllers = of_kind(&server, "controller").await;
    let found = controllers
        .iter()
        .find(|one| one["id"] == id.as_str())
        .unwrap();
    assert_eq!(found["metadata"]["zone"], "a", "{found}");
    // Two, and the one of the server.
    assert_eq!(controllers.len(), 3, "{controllers:?}");

    killed.kill().await;
    stopped.signal("TERM");
    let status = stopped.exited(s(20)).await;
    assert!(status.success(), "{}", stopped.log());
    let left = of_kind(&server, "controller").await;
    assert_eq!(left.len(), 2, "who stops is gone at once: {left:?}");
    assert!(
        left.iter().any(|one| one["id"] == id.as_str()),
        "its lease lasts"
    );
    // 30 s, and a round of the status controller.
    wait_until(
        "the lease of the killed one to end",
        s(60),
        async || match of_kind(&server, "controller").await {
            left if left.len() == 1 => Ok(()),
            left => Err(format!("{left:?}")),
        },
    )
    .await;

    let mut wrong = args("h3");
    wrong[4] = "butler".into();
    let refused = run_dueline(&folder, &wrong).await;
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("unknown kind"),
        "{}",
        refused.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f_091_the_services_of_a_killed_server_are_not_listed_by_the_next_one() {
    let folder = TestFolder::new();
    let mut server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let ids = |all: Vec<Value>| -> Vec<String> {
        let ids = all.iter().map(|one| one["id"].as_str().unwrap().to_owned());
        ids.collect()
    };
    let first = ids(of_kind(&server, "all").await);
    assert_eq!(first.len(), 4, "{first:?}");
    server.kill().await;
    server.start_again().await;
    let second = ids(of_kind(&server, "all").await);
    assert_eq!(second.len(), 4, "{second:?}");
    assert!(second.iter().all(|id| !first.contains(id)), "{second:?}");
}
