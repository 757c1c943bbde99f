//! Text that reaches a terminal: no stored text or argument can steer it, and a closed output ends no process by a panic.

mod fake;

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use fake::{FakeServer, run};
use serde_json::{Value, json};

/// Text that would change colours, reverse the order of letters, and begin a new line.
const EVIL: &str = "a\u{202e}b\u{2066}c\u{1b}[31md\u{9b}e\nf\u{7f}";
const ESCAPED: &str = "a\\u{202e}b\\u{2066}c\\u{1b}[31md\\u{9b}e\\nf\\u{7f}";
const ID: &str = "0197b0c4-0000-7000-8000-000000000001";

#[track_caller]
fn assert_safe(text: &str) {
    let is_unsafe = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2066}".contains(c));
    assert!(!text.contains(is_unsafe), "{text:?}");
}

fn task() -> Value {
    let at = "2026-01-01T00:00:00.000Z";
    let run = json!({"attempt": 0, "worker": "w@1", "started_at": at, "finished_at": at, "end": EVIL, "info": EVIL});
    json!({
        "id": ID, "job": "mail", "queue": "mail", "state": "failed", "status": "failed", "board": "complete",
        "name": EVIL, "details": {"a": EVIL}, "tags": [EVIL], "key": EVIL, "priority": 0, "priority_name": EVIL,
        "weight": 1, "content_type": EVIL, "payload": EVIL, "result_text": EVIL, "error": EVIL, "run_at": at, "trigger_at": null,
        "created_at": at, "created_by": EVIL, "changed_at": at, "started_at": at, "finished_at": at, "tries": 1,
        "retries_max": 0, "losses": 0, "losses_max": 10, "attempt": 0, "backoff": {}, "heartbeat_timeout_ms": 8000,
        "heartbeat_increment_ms": 8000, "run_timeout_ms": null, "owner": null, "claimed_at": null, "heartbeat_at": null,
        "expires_at": null, "deadline_at": null, "cancel_requested": false, "runs": [run], "runs_dropped": 0
    })
}

fn job() -> Value {
    let at = "2026-01-01T00:00:00.000Z";
    json!({
        "id": "mail", "name": "mail", "queue": "mail", "info": EVIL, "status": EVIL, "paused": false,
        "handler": {"kind": EVIL, "config": {"a": EVIL}},
        "retries_max": 3, "backoff": {}, "enqueue_timeout_ms": 60000, "claim_timeout_ms": 10000,
        "heartbeat_timeout_ms": 8000, "heartbeat_increment_ms": 8000, "run_timeout_ms": null, "losses_max": 10,
        "retention_ms": null, "sink": EVIL, "quota": {"rate_per_s": null, "burst": null},
        "created_at": at, "created_by": EVIL, "changed_at": at
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_text_is_escaped_in_every_table_and_unchanged_in_json() {
    let fake = FakeServer::start(|request| {
        let answer = match request.uri.path() {
            "/v1/jobs" => json!({"jobs": [job()]}),
            "/v1/jobs/mail" => job(),
            "/v1/jobs/mail/tasks" => json!({"tasks": [task()], "next": EVIL}),
            "/v1/workers" => {
                let at = "2026-01-01T00:00:00.000Z";
                json!({"workers": [{"id": "w@1", "kind": EVIL, "concurrency": 1, "embedded": true, "handlers": [EVIL], "jobs": [],
                    "started_at": at, "seen_at": at}]})
            }
            "/readyz" => json!({"version": EVIL, "durability": EVIL}),
            _ => task(),
        };
        (200, answer.to_string())
    })
    .await;
    let name = format!("mail/{ID}");
    for args in [
        &["task", "list", "mail"][..],
        &["task", "get", &name],
        &["job", "list"],
        &["job", "get", "mail"],
        &["job", "apply", "mail", "--handler", "noop"],
        &["worker", "list"],
        &["health"],
    ] {
        let output = fake.run(args).await;
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        assert_safe(&output.stdout);
        assert!(output.stdout.contains(ESCAPED.split('\\').next().unwrap()));
        assert!(
            output.stdout.contains("a\\u{202e}b\\u{2066}c"),
            "{args:?}: {}",
            output.stdout
        );
    }
    let output = fake.run(&["task", "get", &name, "--json"]).await;
    let task: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(task["name"], EVIL);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_escape_what_they_quote() {
    let fake = FakeServer::start(|_| {
        let document = json!({
            "type": "t", "title": "t", "status": 400, "detail": EVIL, "kind": "invalid", "reason": "r", "retryable": false
        });
        (400, document.to_string())
    })
    .await;
    let output = fake.run(&["job", "list"]).await;
    assert_safe(&output.stderr);
    let on_one_line = ESCAPED.replace("\\n", " ");
    assert_eq!(output.stderr, format!("error: {on_one_line}\n"));

    let (flag, task, file) = (
        format!("--{EVIL}"),
        format!("mail/{EVIL}"),
        format!("./{EVIL}"),
    );
    for args in [
        &[EVIL][..],
        &[&*flag],
        &["job", "get", EVIL],
        &["job", "apply", &file],
        &["task", "get", &task],
        &["task", "list", "mail", "--state", EVIL],
        &["task", "submit", "mail", "--priority", EVIL],
        &["task", "submit", "mail", "--at", EVIL],
        &["task", "submit", "mail", "--in", EVIL],
        &["task", "submit", "mail", "--id", EVIL],
        &["serve", "--services", EVIL],
        &["--server", EVIL, "job", "list"],
    ] {
        let output = run("http://127.0.0.1:9", args, "").await;
        assert_eq!(output.code, 2, "{args:?}");
        assert_safe(&output.stderr);
        // A line break in an argument begins no line of its own.
        let first = output.stderr.lines().next().unwrap();
        assert!(
            first.contains("\\u{202e}") && first.contains('f'),
            "{first}"
        );
        assert!(
            !output.stderr.lines().any(|line| line.starts_with('f')),
            "{}",
            output.stderr
        );
    }
}

/// A pipe whose reader is gone.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_closed_output_ends_no_command_by_a_panic() {
    for args in [
        &["--help"][..],
        &["completions", "bash"],
        &["job", "get", "no name"],
        &["--server", "http://127.0.0.1:9", "job", "list"],
        &["scale"],
    ] {
        let dueline = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_dueline"));
            command.args(args).stdin(Stdio::null());
            command
        };
        let output = dueline()
            .stdout(closed_pipe())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let expected = dueline().output().unwrap().status.code();
        assert_eq!(output.status.code(), expected, "{args:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !stderr.contains("panicked") && !stderr.contains("Broken pipe"),
            "{stderr}"
        );
        let status = dueline()
            .stdout(Stdio::null())
            .stderr(closed_pipe())
            .status()
            .unwrap();
        assert_eq!(status.code(), expected, "{args:?} without standard error");
    }
}

#[test]
fn a_server_runs_without_standard_error() {
    let home = tempfile::tempdir().unwrap();
    for args in [
        &["serve", "--data", "d.db", "--listen", "127.0.0.1:0"][..],
        &["dev", "--listen", "127.0.0.1:0"],
    ] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_dueline"))
            .args(args)
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(closed_pipe())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on ").unwrap().to_owned();
        // Its notes come after the first line, so it is asked until it answers, and answers again later.
        let health = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_dueline"));
            command
                .args(["health", "--server", &address])
                .output()
                .unwrap()
                .status
                .code()
        };
        let codes = [health(), health()];
        if args[0] == "dev" {
            // The address of the API that it prints answers something useful.
            let api = lines
                .map_while(Result::ok)
                .find(|line| line.starts_with("API"))
                .unwrap();
            let mut urls = api
                .split(['(', ')', ' '])
                .filter(|word| word.starts_with("http://"));
            assert!(urls.clone().count() == 2 && urls.all(is_found), "{api}");
        }
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!(codes, [Some(0), Some(0)], "{args:?}");
    }
}

/// Whether a GET request of the URL succeeds.
fn is_found(url: &str) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .build()
        .unwrap();
    runtime.block_on(async {
        client
            .get(url)
            .send()
            .await
            .is_ok_and(|answer| answer.status().is_success())
    })
}
