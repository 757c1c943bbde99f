//! What a server refuses to start with, and what it takes from its settings.

use std::{fs, process::Command};

use dueline_tests_end_to_end::{Ended, Place, Server, dueline, ended};
use serde_json::json;

use crate::s;

/// Where SQLite keeps `PRAGMA user_version`, which is the version of the schema, in big-endian order.
const USER_VERSION: std::ops::Range<usize> = 60..64;

#[track_caller]
fn refused(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let error = ended.stderr.lines().any(|line| line.starts_with("error: "));
    assert!(error, "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "'{part}' is not in {ended:?}");
    }
}

async fn serve(place: &Place, args: &[&str]) -> Ended {
    let store = place.store().display().to_string();
    let mut all = vec!["serve", "--data", &store];
    all.extend(args);
    ended(place, &all).await
}

#[tokio::test(flavor = "multi_thread")]
async fn g_13_an_address_that_others_reach_is_refused_unless_it_was_asked_for() {
    let place = Place::new();
    let ended = serve(&place, &["--listen", "0.0.0.0:0"]).await;
    refused(
        &ended,
        2,
        &["0.0.0.0", "--allow-remote-without-authentication"],
    );
    assert!(
        !place.store().exists(),
        "refused before anything was touched"
    );
    let ended = serve(&place, &["--listen", "[::]:0"]).await;
    refused(&ended, 2, &["--allow-remote-without-authentication"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_a_setting_that_there_is_not_is_refused_by_its_name() {
    let place = Place::new();
    let local = ["--listen", "127.0.0.1:0"];
    let ended = serve(
        &place,
        &[&local[..], &["--set", "worker.concurency=3"]].concat(),
    )
    .await;
    refused(&ended, 2, &["concurency"]);
    fs::write(place.file("dueline.toml"), "[worker]\nconcurency = 3\n").unwrap();
    let ended = serve(&place, &local).await;
    refused(&ended, 2, &["concurency", "dueline.toml"]);
    assert!(!place.store().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn f_149_heartbeats_that_do_not_fit_into_the_timeout_are_refused() {
    let place = Place::new();
    let late = [
        "--listen",
        "127.0.0.1:0",
        "--set",
        "worker.heartbeat_interval_ms=4000",
    ];
    let ended = serve(&place, &late).await;
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
async fn f_141_a_part_of_a_fleet_with_a_queue_of_its_own_is_refused() {
    let place = Place::new();
    for services in [
        "frontend",
        "consumer",
        "status-controller",
        "frontend,consumer",
    ] {
        let store = "dynamodb://t?region=us-east-1";
        let args = ["serve", "--listen", "127.0.0.1:0", "--store", store];
        let ended = ended(&place, &[&args[..], &["--services", services]].concat()).await;
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
        let said = setup(variable, &closed);
        assert!(
            said.contains(&format!("cannot be reached at {closed}")),
            "{said}"
        );
        let said = setup(variable, "localhost:8000");
        assert!(
            said.contains("'localhost:8000' is not an endpoint"),
            "{said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_file_of_another_program_is_refused_and_stays_as_it_is() {
    let place = Place::new();
    let text = "Dear diary, this is no database. ".repeat(200);
    fs::write(place.store(), &text).unwrap();
    let ended = serve(&place, &["--listen", "127.0.0.1:0"]).await;
    refused(&ended, 2, &["not a dueline store"]);
    assert_eq!(fs::read_to_string(place.store()).unwrap(), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_141_a_file_of_a_newer_program_is_refused_and_stays_as_it_is() {
    let place = Place::new();
    let mut server = Server::start(&place, &["--no-worker"]).await;
    server.api.put_job("job", json!({}), json!({})).await;
    let id = server.api.submit("job", json!({})).await;
    assert_eq!(server.stop(s(20)).await.code(), Some(0));

    let mut bytes = fs::read(place.store()).unwrap();
    let present: [u8; 4] = bytes[USER_VERSION].try_into().unwrap();
    let newer = u32::from_be_bytes(present) + 1;
    bytes[USER_VERSION].copy_from_slice(&newer.to_be_bytes());
    fs::write(place.store(), &bytes).unwrap();
    let ended = serve(&place, &["--listen", "127.0.0.1:0"]).await;
    refused(
        &ended,
        2,
        &[&format!("schema version {newer}"), "use a newer dueline"],
    );

    // Nothing was changed: with its true version the file is as good as before.
    bytes = fs::read(place.store()).unwrap();
    bytes[USER_VERSION].copy_from_slice(&present);
    fs::write(place.store(), &bytes).unwrap();
    server.start_again().await;
    assert_eq!(server.api.task("job", &id).await["id"], id.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn f_143_the_default_timeouts_of_a_server_hold_for_jobs_that_name_none() {
    let place = Place::new();
    let args = [
        "--no-worker",
        "--set",
        "defaults.heartbeat_timeout_ms=7001",
        "--set",
        "defaults.claim_timeout_ms=7002",
        "--set",
        "defaults.enqueue_timeout_ms=7003",
    ];
    let server = Server::start(&place, &args).await;
    let own = json!({"claim_timeout_ms": 500});
    server.api.put_job("job", json!({}), own).await;
    let job = server.api.get("jobs/job").await.good();
    assert_eq!(job["heartbeat_timeout_ms"], 7001, "{job}");
    assert_eq!(job["claim_timeout_ms"], 500, "{job}");
    assert_eq!(job["enqueue_timeout_ms"], 7003, "{job}");
}
