//! A SQLite file and its server.

use std::{path::Path, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

use crate::site::{doctor, dueline};

/// A server on `t.db` in a folder, killed when it is dropped, and its address.
async fn server(home: &Path) -> (Child, String) {
    let mut command = dueline(home);
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "t.db",
        "--log-level",
        "warn",
    ];
    command
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let stdout = BufReader::new(child.stdout.take().expect("its output"));
    let line = stdout
        .lines()
        .next_line()
        .await
        .expect("a line")
        .expect("a line");
    let url = line
        .strip_prefix("listening on ")
        .expect("the address comes first");
    (child, url.to_owned())
}

#[tokio::test]
async fn g_18_a_file_is_looked_at_by_itself_or_through_its_server() {
    let home = tempfile::tempdir().expect("a folder");
    let data = ["--data", "t.db"];
    let said = doctor(home.path(), &data).await;
    said.has_defects(&["file t.db"]);
    said.has("defect", "file t.db", "no such file", "dueline serve");
    assert!(!home.path().join("t.db").exists(), "it makes none");

    let (mut child, url) = server(home.path()).await;
    let apply = [
        "--server",
        &url,
        "job",
        "apply",
        "slow",
        "--command=true",
        "--heartbeat-timeout=5s",
    ];
    let applied = dueline(home.path())
        .args(apply)
        .output()
        .await
        .expect("it runs");
    assert!(applied.status.success(), "{applied:?}");
    let said = doctor(home.path(), &["--data", "t.db", "--server", &url]).await;
    said.has_defects(&["jobs slow"]);
    said.has("ok", "file t.db", "in use by process", "");
    said.has("ok", &format!("processes {url}"), "ready, version", "");
    said.has("ok", &format!("clocks {url}"), "", "");
    said.has("ok", "processes executors", "1 heard of", "");
    said.has("defect", "jobs slow", "6000 ms", "--heartbeat-timeout");
    let said = doctor(home.path(), &data).await;
    said.has_defects(&[]);
    said.has("unknown", "processes all", "", "--server");

    child.kill().await.expect("it ends");
    let said = doctor(home.path(), &["--data", "t.db", "--durability", "normal"]).await;
    said.has_defects(&["jobs slow"]);
    said.has("ok", "file t.db", "not damaged", "");
    said.has("warning", "file durability", "lost with the power", "full");
    said.has(
        "warning",
        "processes server",
        "nothing runs them",
        "dueline serve",
    );
    let healed = doctor(
        home.path(),
        &["--data", "t.db", "--set=worker.heartbeat_interval_ms=1000"],
    )
    .await;
    healed.has_defects(&[]);
}

#[tokio::test]
async fn g_18_people_get_a_table_with_the_mend_below_each_finding() {
    let home = tempfile::tempdir().expect("a folder");
    let output = dueline(home.path())
        .args(["doctor", "--data", "t.db"])
        .output()
        .await
        .expect("it runs");
    assert_eq!(output.status.code(), Some(8));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("STATE"), "{text}");
    assert!(text.contains("mend: 'dueline serve' makes it"), "{text}");
    assert!(text.trim_end().ends_with("ok 1"), "{text}");
}
