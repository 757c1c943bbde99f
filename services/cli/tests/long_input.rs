//! Errors that quote input are bounded, whatever the length of the input.

mod fake;

use fake::{FakeServer, run};

/// Longest error that a user has to read: the quoted part of the input, and the message around it.
const STDERR_BYTES_MAX: usize = 1_500;

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_of_100_kb_is_not_printed_back_whole() {
    let x = &*"x".repeat(100_000);
    let of_task = format!("mail/{x}");
    let (file, at_file, server) = (format!("./{x}"), format!("@{x}"), format!("http://{x}:y"));
    let setting = format!("{x}=1");
    let (long_flag, config) = (format!("--{x}"), format!("{{\"{x}\": "));
    let blanks = &*"x ".repeat(50_000);
    for args in [
        &[x][..],
        &[&*long_flag],
        &["job", x],
        &["job", "get", x],
        &["job", "get", &long_flag],
        &["job", "apply", &file],
        &["job", "apply", "j", "--sink", x],
        &["job", "apply", "j", "--rate", x],
        &[
            "job",
            "apply",
            "j",
            "--handler",
            "noop",
            "--handler-config",
            &config,
        ],
        &["task", "get", x],
        &["task", "get", &of_task],
        &["task", "list", "mail", "--state", x],
        &["task", "list", "mail", "--state", blanks],
        &["task", "submit", "mail", "--at", x],
        &["task", "submit", "mail", "--in", x],
        &["task", "submit", "mail", "--priority", x],
        &["task", "submit", "mail", "--payload", x],
        &["task", "submit", "mail", "--payload", &at_file],
        &["task", "submit", "mail", "--batch", x],
        &["--server", x, "job", "list"],
        &["--server", &server, "job", "list"],
        &["--request-timeout", x, "job", "list"],
        &["bench", "--scenario", x],
        &["completions", x],
        &["cost", "--prices", x],
        &["demo", "--input", x],
        &["scale", x],
        &["serve", "--config", x],
        &["serve", "--services", x],
        &["serve", "--store", x],
        &["serve", "--data", x],
        &["serve", "--set", &setting],
    ] {
        let output = run("http://127.0.0.1:9", args, "").await;
        let name = args.iter().map(|arg| arg.get(..20).unwrap_or(arg));
        let name: Vec<_> = name.collect();
        assert_eq!(output.code, 2, "{name:?}: {:.400}", output.stderr);
        let len = output.stderr.len();
        assert!(len < 2 * STDERR_BYTES_MAX, "{name:?}: {len} bytes");
        let mut words = output.stderr.split_whitespace();
        assert!(words.all(|word| word.chars().count() < 220), "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_problem_document_of_a_long_argument_is_bounded_too() {
    let x = &*"x".repeat(100_000);
    for args in [
        &["--json", x][..],
        &["--json", "job", "get", x],
        &["--json", "task", "submit", "mail", "--batch", x],
    ] {
        let output = run("http://127.0.0.1:9", args, "").await;
        assert_eq!(output.code, 2);
        let problem: serde_json::Value = serde_json::from_str(&output.stderr).unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.len() < STDERR_BYTES_MAX && detail.contains(" characters)"),
            "{detail}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_length_of_a_cut_argument_is_given() {
    let long = "x".repeat(100_000);
    let output = run("http://127.0.0.1:9", &["job", "get", &long], "").await;
    let expected = format!(
        "error: invalid value '{}… (100002 characters)' for '<JOB>': job name has 100000 bytes; at most 64 are allowed",
        "x".repeat(198)
    );
    assert_eq!(output.stderr.lines().next(), Some(&*expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_a_server_is_bounded_too() {
    let fake = FakeServer::start(|_| {
        let detail = format!("unknown field `{}`", "x".repeat(100_000));
        let document = serde_json::json!({
            "type": "t", "title": "t", "status": 400, "detail": detail, "kind": "invalid", "reason": "unknown_field",
            "retryable": false, "field": "x".repeat(100_000),
        });
        (400, document.to_string())
    })
    .await;
    for args in [&["job", "list"][..], &["job", "list", "--json"]] {
        let output = fake.run(args).await;
        assert_eq!(output.code, 2);
        assert!(
            output.stderr.len() < STDERR_BYTES_MAX,
            "{:.400}",
            output.stderr
        );
        assert!(output.stderr.contains("characters)"), "{}", output.stderr);
    }
}
