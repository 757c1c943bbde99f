//! Settings and files with which a server refuses to start, and default settings that it applies.

use std::{fs, process::Command};

use dueline_tests_end_to_end::{ExitedCommand, ServerProcess, TestFolder, dueline, run_dueline};
use serde_json::json;

use crate::s;

/// The bytes of `PRAGMA user_version` in a SQLite file: the schema version, big-endian.
const USER_VERSION: std::ops::Range<usize> = 60..64;

#[track_caller]
fn refused(ended: &ExitedCommand, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let error = ended.stderr.lines().any(|line| line.starts_with("error: "));
    assert!(error, "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "'{part}' is not in {ended:?}");
    }
}

async fn serve(folder: &TestFolder, args: &[&str]) -> ExitedCommand {
    let store = folder.store().display().to_string();
    let mut all = vec!["serve", "--data", &store];
    all.extend(args);
    run_dueline(folder, &all).await
}

#[tokio::test(flavor = "multi_thread")]
async fn g_13_an_address_that_other_machines_reach_is_refused_unless_it_is_allowed() {
    let folder = TestFolder::new();
    let ended = serve(&folder, &["--listen", "0.0.0.0:0"]).await;
    refused(
        &ended,
        2,
        &["0.0.0.0", "--allow-remote-without-authentication"],
    );
    assert!(
        !folder.store().exists(),
        "refused before any file was created"
    );
    let ended = serve(&folder, &["--listen", "[::]:0"]).await;
    refused(&ended, 2, &["--allow-remote-without-authentication"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_an_unknown_setting_is_refused_with_its_name() {
    let folder = TestFolder::new();
    let local = ["--listen", "127.0.0.1:0"];
    let ended = serve(
        &folder,
        &[&local[..], &["--set", "worker.concurency=3"]].concat(),
    )
    .await;
    refused(&ended, 2, &["concurency"]);
    fs::write(folder.file("dueline.toml"), "[worker]\nconcurency = 3\n").unwrap();
    let ended = serve(&folder, &local).await;
    refused(&ended, 2, &["concurency", "dueline.toml"]);
    assert!(!folder.store().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn f_149_heartbeats_that_do_not_fit_into_the_timeout_are_refused() {
    let folder = TestFolder::new();
    let late = [
        "--listen",
        "127.0.0.1:0",
        "--set",
        "worker.heartbeat_interval_ms=4000",
    ];
    let ended = serve(&folder, &late).await;
    refused(
        &ended,
        2,
        &[
            "worker.heartbeat_interval_ms",
            "defaults.heartbeat_timeout_ms",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_fleet_process_with_a_local_queue_is_refused() {
    let folder = TestFolder::new();
    for services in [
        "frontend",
        "consumer",
        "status-controller",
        "frontend,consumer",
    ] {
        let store = "dynamodb://t?region=us-east-1";
        let args = ["serve", "--listen", "127.0.0.1:0", "--store", store];
        let ended = run_dueline(&folder, &[&args[..], &["--services", services]].concat()).await;
        refused(&ended, 2, &["'local:'", "--queue sqs://PREFIX"]);
    }
}

#[test]
fn f_141_an_endpoint_from_the_usual_aws_variables_is_named() {
    let setup = |variable: &str, url: &str| {
        let output = Command::new(dueline())
            .args(["setup", "--store", "dynamodb://t"])
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env(variable, url)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for variable in ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"] {
        let stderr = setup(variable, &closed);
        assert!(
            stderr.contains(&format!("cannot be reached at {closed}")),
            "{stderr}"
        );
        let stderr = setup(variable, "localhost:8000");
        assert!(
            stderr.contains("'localhost:8000' is not an endpoint"),
            "{stderr}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_file_of_another_program_is_refused_and_left_unchanged() {
    let folder = TestFolder::new();
    let text = "Diary entry, not a database. ".repeat(200);
    fs::write(folder.store(), &text).unwrap();
    let ended = serve(&folder, &["--listen", "127.0.0.1:0"]).await;
    refused(&ended, 2, &["not a dueline store"]);
    assert_eq!(fs::read_to_string(folder.store()).unwrap(), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_file_of_a_newer_program_is_refused_and_left_unchanged() {
    let folder = TestFolder::new();
    let mut server = ServerProcess::start(&folder, &["--no-worker"]).await;
    server.api.put_job("job", json!({}), json!({})).await;
    let id = server.api.submit("job", json!({})).await;
    assert_eq!(server.stop(s(20)).await.code(), Some(0));

    let mut bytes = fs::read(folder.store()).unwrap();
    let version: [u8; 4] = bytes[USER_VERSION].try_into().unwrap();
    let newer = u32::from_be_bytes(version) + 1;
    bytes[USER_VERSION].copy_from_slice(&newer.to_be_bytes());
    fs::write(folder.store(), &bytes).unwrap();
    let ended = serve(&folder, &["--listen", "127.0.0.1:0"]).await;
    refused(
        &ended,
        2,
        &[&format!("schema version {newer}"), "use a newer dueline"],
    );

    // The file was not changed: with its original version it opens again.
    bytes = fs::read(folder.store()).unwrap();
    bytes[USER_VERSION].copy_from_slice(&version);
    fs::write(folder.store(), &bytes).unwrap();
    server.start_again().await;
    assert_eq!(server.api.task("job", &id).await["id"], id.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_the_default_timeouts_of_a_server_apply_to_jobs_without_their_own() {
    let folder = TestFolder::new();
    let args = [
        "--no-worker",
        "--set",
        "defaults.heartbeat_timeout_ms=7001",
        "--set",
        "defaults.claim_timeout_ms=7002",
        "--set",
        "defaults.enqueue_timeout_ms=7003",
    ];
    let server = ServerProcess::start(&folder, &args).await;
    let own = json!({"claim_timeout_ms": 500});
    server.api.put_job("job", json!({}), own).await;
    let job = server.api.get("jobs/job").await.expect_success();
    assert_eq!(job["heartbeat_timeout_ms"], 7001, "{job}");
    assert_eq!(job["claim_timeout_ms"], 500, "{job}");
    assert_eq!(job["enqueue_timeout_ms"], 7003, "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g_13_a_settings_file_in_the_working_directory_does_not_open_the_server_to_the_network() {
    let folder = TestFolder::new();
    let open = "[server]\nlisten = \"0.0.0.0:0\"\nallow_remote = true\n";
    fs::write(folder.file("dueline.toml"), open).unwrap();
    let ended = serve(&folder, &[]).await;
    refused(&ended, 2, &["server.listen", "dueline.toml", "--config"]);
    assert!(!folder.store().exists());
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    assert!(server.url().starts_with("http://127.0.0.1:"));
}
