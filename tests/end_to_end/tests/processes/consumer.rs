//! Consumers that are shell scripts over the command line, and owners that die.

use std::{collections::BTreeMap, fs, path::Path};

use dueline_tests_end_to_end::{ChildProcess, ServerProcess, TestFolder, dueline, wait_until};
use serde_json::json;

use crate::s;

const CONSUMER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/consumer.sh");

/// Fails at the first run of every fifth task, and writes a line for each run that succeeds.
const COMMAND: &str = r#"
n=$(cat)
if [ $((n % 5)) = 0 ] && mkdir "failed.$n" 2> /dev/null; then exit 1; fi
echo "$n" >> done.txt
echo "done $n""#;

fn start(folder: &TestFolder, url: &str, name: &str) -> ChildProcess {
    let programs = dueline().parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let variables = [
        ("PATH", format!("{programs}:{path}")),
        ("DUELINE_SERVER", url.to_owned()),
    ];
    let variables = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()));
    let variables: Vec<_> = variables.collect();
    let args = [CONSUMER, "squares", name, "sh", "-c", COMMAND];
    ChildProcess::start_with(folder, name, Path::new("sh"), &args, &variables)
}

#[tokio::test(flavor = "multi_thread")]
async fn f_090_two_shell_loops_do_each_of_a_hundred_tasks_once_and_failures_come_back() {
    let script = fs::read_to_string(CONSUMER).unwrap();
    let code = script.lines().filter(|line| !line.starts_with('#'));
    assert!(code.count() <= 20, "the loop has become long");
    let page = include_str!("../../../../docs/board.md");
    assert!(page.contains(&script), "docs/board.md shows another loop");

    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let quick = json!({"backoff": {"standard": {"initial_ms": 50, "max_ms": 50}}});
    server.api.put_job("squares", json!({}), quick).await;
    for n in 1..=100 {
        server.api.submit("squares", json!({"payload": n})).await;
    }
    let mut copies = ["one", "two"].map(|name| start(&folder, server.url(), name));
    for copy in &mut copies {
        let status = copy.exited(s(300)).await;
        assert!(status.success(), "{status:?}\n{}", copy.log());
    }
    let mut done = BTreeMap::new();
    for line in fs::read_to_string(folder.file("done.txt")).unwrap().lines() {
        *done.entry(line.parse::<u32>().unwrap()).or_insert(0) += 1;
    }
    let once: BTreeMap<_, _> = (1..=100).map(|n| (n, 1)).collect();
    assert_eq!(done, once);
    let mut owners = BTreeMap::new();
    for task in server.api.tasks("squares").await {
        assert_eq!(task["state"], "succeeded", "{task}");
        let n = task["payload"].as_u64().unwrap();
        assert_eq!(task["result_text"], format!("done {n}"), "{task}");
        let tries = if n % 5 == 0 { 2 } else { 1 };
        assert_eq!(task["tries"], tries, "{task}");
        let owner = task["last_owner"].as_str().unwrap().to_owned();
        *owners.entry(owner).or_insert(0) += 1;
    }
    assert_eq!(owners.len(), 2, "both copies worked: {owners:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_078_f_079_a_claim_ends_with_its_lifetime_when_its_owner_is_silent() {
    let folder = TestFolder::new();
    let mut server = ServerProcess::start(&folder, &["--no-worker"]).await;
    server.api.put_job("squares", json!({}), json!({})).await;
    let claim = async |api: &dueline_tests_end_to_end::RestClient, id: &str, body| {
        let path = format!("jobs/squares/tasks/{id}/claim");
        api.post(&path, &body).await.expect_success()
    };
    let short = server.api.submit("squares", json!({})).await;
    let never = server.api.submit("squares", json!({})).await;
    claim(
        &server.api,
        &short,
        json!({"owner": "x", "lifetime_ms": 500}),
    )
    .await;
    claim(
        &server.api,
        &never,
        json!({"owner": "x", "lifetime_ms": "never"}),
    )
    .await;
    let task = server.api.task("squares", &short).await;
    assert_eq!(
        (&task["board"], &task["owner"]),
        (&json!("claimed"), &json!("x"))
    );
    let task = server
        .api
        .in_state("squares", &short, "enqueued", s(10))
        .await;
    assert_eq!(task["board"], "unclaimed", "{task}");
    let again = claim(&server.api, &short, json!({"owner": "y"})).await;
    assert_eq!(again["lease"]["owner"], "y", "{again}");
    // Neither time nor a crash of the server ends a claim that never expires.
    tokio::time::sleep(s(10)).await;
    server.kill().await;
    server.start_again().await;
    wait_until("the job to be read", s(10), async || {
        let task = server.api.task("squares", &never).await;
        match (&task["owner"], &task["never_expires"]) {
            (owner, never) if *owner == "x" && *never == true => Ok(()),
            _ => Err(task.to_string()),
        }
    })
    .await;
}

/// What the command line prints on standard output; it must succeed.
fn run(server: &str, args: &[&str]) -> String {
    let output = std::process::Command::new(dueline())
        .args(args)
        .env_clear()
        .env("DUELINE_SERVER", server)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn f_077_f_082_f_083_f_085_the_board_shows_what_is_unclaimed_and_the_trash_who_and_why() {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    server.api.put_job("review", json!({}), json!({})).await;
    let mut ids = Vec::new();
    for page in 1..=3 {
        ids.push(
            server
                .api
                .submit("review", json!({"payload": {"page": page}}))
                .await,
        );
    }
    let url = server.url();
    let list = |flags: &[&str]| {
        let text = run(url, &[&["task", "list", "review", "--ids"], flags].concat());
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let task = format!("review/{}", ids[1]);
    let claim = ["task", "claim", &task, "--owner", "ann", "--print-token"];
    let token = run(url, &claim).trim().to_owned();
    // Other processes see it at once.
    assert_eq!(list(&["--fresh"]).len(), 3);
    for flag in ["--unclaimed", "--claimable"] {
        assert_eq!(list(&[flag, "--fresh"]).len(), 2, "{flag}");
    }
    let count = |flags: &[&str]| run(url, &[&["task", "count", "review"], flags].concat());
    assert_eq!(
        (count(&[]), count(&["--unclaimed"]), count(&["--claimed"])),
        ("3\n".into(), "2\n".into(), "1\n".into())
    );
    let table = run(url, &["task", "list", "review"]);
    assert!(table.contains("OWNER") && table.contains("ann"), "{table}");

    let owned = [&task[..], "--owner", "ann", "--token", &token];
    run(url, &[&["task", "abandon"], &owned[..]].concat());
    assert_eq!(list(&["--unclaimed"]).len(), 3);
    let claim = [
        "task",
        "claim",
        &task,
        "--owner",
        "ann",
        "--lifetime",
        "never",
        "--print-token",
    ];
    let token = run(url, &claim).trim().to_owned();
    let table = run(url, &["task", "list", "review"]);
    assert!(table.contains("ann (never expires)"), "{table}");
    let owned = [&task[..], "--owner", "ann", "--token", &token];
    run(
        url,
        &[
            &["task", "trash"],
            &owned[..],
            &["--reason", "cannot be read"],
        ]
        .concat(),
    );
    assert_eq!(count(&[]), "2\n");
    let trash = run(url, &["trash", "list", "review"]);
    let row = trash.lines().nth(1).expect("a task");
    for part in [&task[..], "ann", "cannot be read", r#"{"page":2}"#] {
        assert!(row.contains(part), "{part} is not in {trash}");
    }
    assert_eq!(trash.lines().count(), 2, "{trash}");
}
