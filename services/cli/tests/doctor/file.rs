//! Findings about a SQLite file and its server.

use std::{path::Path, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

use crate::deployment::{doctor, dueline};

/// A server on the file `t.db` in the folder `home`, killed when it is dropped, and its address.
async fn server(home: &Path) -> (Child, String) {
    let mut command = dueline(home);
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "t.db",
        "--log-level",
        "warn",
    ];
    command
        .args(args)
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
async fn g_18_a_file_is_checked_directly_or_through_its_server() {
    let home = tempfile::tempdir().expect("a folder");
    let data = ["--data", "t.db"];
    let output = doctor(home.path(), &data).await;
    output.has_defects(&["file t.db"]);
    output.has("defect", "file t.db", "no such file", "dueline serve");
    assert!(
        !home.path().join("t.db").exists(),
        "the doctor creates no file"
    );

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
    let output = doctor(home.path(), &["--data", "t.db", "--server", &url]).await;
    output.has_defects(&["jobs slow"]);
    output.has("ok", "file t.db", "in use by process", "");
    output.has("ok", &format!("processes {url}"), "ready, version", "");
    output.has("ok", &format!("clocks {url}"), "", "");
    output.has("ok", "processes executors", "1 active", "");
    output.has("defect", "jobs slow", "6000 ms", "--heartbeat-timeout");
    let output = doctor(home.path(), &data).await;
    output.has_defects(&[]);
    output.has("unknown", "processes all", "", "--server");

    child.kill().await.expect("it ends");
    let output = doctor(home.path(), &["--data", "t.db", "--durability", "normal"]).await;
    output.has_defects(&["jobs slow"]);
    output.has("ok", "file t.db", "not damaged", "");
    output.has("warning", "file durability", "a power failure", "full");
    output.has(
        "warning",
        "processes server",
        "nothing runs them",
        "dueline serve",
    );
    let fixed = doctor(
        home.path(),
        &["--data", "t.db", "--set=worker.heartbeat_interval_ms=1000"],
    )
    .await;
    fixed.has_defects(&[]);
}

#[tokio::test]
async fn g_18_the_table_shows_the_fix_below_each_finding() {
    let home = tempfile::tempdir().expect("a folder");
    let output = dueline(home.path())
        .args(["doctor", "--data", "t.db"])
        .output()
        .await
        .expect("it runs");
    assert_eq!(output.status.code(), Some(8));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("STATE"), "{text}");
    assert!(text.contains("fix: 'dueline serve' creates it"), "{text}");
    assert!(text.trim_end().ends_with("ok 1"), "{text}");
}
