//! Watches from the command line, which survive a restart of the server.

use std::{fs, path::Path};

use dueline_tests_end_to_end::{ChildProcess, ServerProcess, TestFolder, dueline, wait_until};
use serde_json::{Value, json};

use crate::s;

fn lines(folder: &TestFolder, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.file(name)).unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn reported_if(is_reported: bool, reported: &[Value]) -> Result<(), String> {
    is_reported
        .then_some(())
        .ok_or_else(|| format!("{reported:?}"))
}

fn watch(folder: &TestFolder, url: &str, name: &str, target: &str) -> ChildProcess {
    let program = dueline().display().to_string();
    let command = format!("exec {program} task watch {target} --json > {name}.out");
    let args = ["-c", &command];
    let variables = [("DUELINE_SERVER", url)];
    ChildProcess::start_with(folder, name, Path::new("sh"), &args, &variables)
}

#[tokio::test(flavor = "multi_thread")]
async fn f_086_a_watch_of_the_command_line_survives_a_restart_and_ends_with_its_task() {
    let folder = TestFolder::new();
    let mut server = ServerProcess::start(&folder, &["--no-worker"]).await;
    server.api.put_job("mail", json!({}), json!({})).await;
    let task = server.api.submit("mail", json!({})).await;
    let mut of_job = watch(&folder, server.url(), "job", "mail");
    let mut of_task = watch(&folder, server.url(), "task", &format!("mail/{task}"));
    wait_until("the job to be watched", s(30), async || {
        let reported = lines(&folder, "job.out");
        reported_if(
            reported.iter().any(|line| line["kind"] == "position"),
            &reported,
        )
    })
    .await;
    wait_until("the task is shown", s(20), async || {
        let reported = lines(&folder, "task.out");
        reported_if(reported.len() == 1, &reported)
    })
    .await;
    let second = server.api.submit("mail", json!({})).await;
    wait_until("a post is reported", s(20), async || {
        let reported = lines(&folder, "job.out");
        let is_it = |change: &Value| change["kind"] == "posted" && change["id"] == second.as_str();
        reported_if(reported.iter().any(is_it), &reported)
    })
    .await;
    server.kill().await;
    server.start_again().await;
    for id in [&task, &second] {
        let path = format!("jobs/mail/tasks/{id}/cancel");
        server.api.post(&path, &json!({})).await.expect_success();
    }
    // It has not succeeded.
    let status = of_task.exited(s(30)).await;
    assert_eq!(status.code(), Some(6), "{}", of_task.log());
    let reported = lines(&folder, "task.out");
    let last = reported.last().unwrap();
    assert_eq!(last["kind"], "ended", "{reported:?}");
    assert_eq!(last["state"], "cancelled", "{reported:?}");
    // The server that was killed had counted the changes: the new one says that it has not.
    wait_until("the job is watched again", s(30), async || {
        let reported = lines(&folder, "job.out");
        reported_if(
            reported.iter().any(|change| change["kind"] == "gap"),
            &reported,
        )
    })
    .await;
    let third = server.api.submit("mail", json!({})).await;
    wait_until("a post is reported after the restart", s(20), async || {
        let reported = lines(&folder, "job.out");
        reported_if(
            reported.iter().any(|change| change["id"] == third.as_str()),
            &reported,
        )
    })
    .await;
    of_job.kill().await;
}
