//! `dueline schedule` as a process, without a server.

use std::process::Output;

use serde_json::{Value, json};

fn run(args: &[&str]) -> Output {
    assert_cmd::Command::new(env!("CARGO_BIN_EXE_dueline"))
        .env_clear()
        // No server listens there.
        .env("DUELINE_SERVER", "http://127.0.0.1:1")
        .arg("schedule")
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

const BERLIN: [&str; 8] = [
    "next",
    "30 2 * * *",
    "--zone",
    "europe/berlin",
    "--after",
    "2025-03-28T12:00:00Z",
    "--count",
    "3",
];

#[test]
fn g_05_the_next_firings_are_shown_in_utc_and_local_time() {
    let output = run(&BERLIN);
    let text = stdout(&output);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().take(2).collect())
        .collect();
    let expected = [
        ["UTC", "LOCAL"],
        ["2025-03-29T01:30:00.000Z", "2025-03-29T02:30:00+01:00"],
        // There is no 02:30 on this day.
        ["2025-03-30T01:00:00.000Z", "2025-03-30T03:00:00+02:00"],
        ["2025-03-31T00:30:00.000Z", "2025-03-31T02:30:00+02:00"],
    ];
    assert_eq!(lines, expected);
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn g_05_the_documentation_shows_what_the_program_prints() {
    let page = include_str!("../../../docs/schedules.md");
    let text = stdout(&run(&[
        "next",
        "30 2 * * *",
        "--zone",
        "Europe/Berlin",
        "--after",
        "2025-03-28T12:00:00Z",
        "--count",
        "3",
    ]));
    assert!(page.contains(&format!("```\n{text}```")), "{text}");
}

#[test]
fn g_05_the_next_firings_as_json() {
    let json: Value =
        serde_json::from_str(&stdout(&run(&[&BERLIN[..], &["--json"]].concat()))).unwrap();
    let firing = |at: &str, local: &str| json!({ "at": at, "local": local });
    let expected = json!({
        "rule": "30 2 * * *",
        "zone": "Europe/Berlin",
        "firings": [
            firing("2025-03-29T01:30:00.000Z", "2025-03-29T02:30:00+01:00"),
            firing("2025-03-30T01:00:00.000Z", "2025-03-30T03:00:00+02:00"),
            firing("2025-03-31T00:30:00.000Z", "2025-03-31T02:30:00+02:00"),
        ],
        "more": true,
    });
    assert_eq!(json, expected);
}

#[test]
fn g_05_a_rule_that_does_not_fire_again_says_so() {
    let args = ["next", "@every 1h", "--end", "2025-01-01T02:00:00Z"];
    let from = ["--after", "2025-01-01T00:30:00Z"];
    let output = run(&[&args[..], &from].concat());
    assert_eq!(stdout(&output).lines().count(), 2);
    let note = String::from_utf8(output.stderr).unwrap();
    assert_eq!(note, "the rule does not fire after that\n");
    let json: Value =
        serde_json::from_str(&stdout(&run(&[&args[..], &["--json"]].concat()))).unwrap();
    assert_eq!(
        (&json["firings"], &json["more"]),
        (&json!([]), &json!(false))
    );
}

#[test]
fn f_100_an_invalid_rule_has_exit_code_two_and_a_typed_reason() {
    for (args, reason, field) in [
        (&["2 1"][..], "field_count", "timing"),
        (&[""], "empty", "timing"),
        (&["0 0 31 2 *"], "never_fires", "timing"),
        (&["60 * * * * *"], "out_of_range", "timing.second"),
        (&["@reboot"], "unknown_name", "timing"),
        (
            &["@daily", "--zone", "Mars/Olympus"],
            "unknown_zone",
            "zone",
        ),
        (
            &["@daily", "--anchor", "2025-01-01T00:00:00Z"],
            "not_applicable",
            "anchor",
        ),
        (
            &["@daily", "--end", "1970-01-01T00:00:00Z"],
            "empty_range",
            "end",
        ),
        // What the command line itself refuses.
        (&["@daily", "--after", "soon"], "usage", ""),
        (&["@daily", "--count", "0"], "usage", ""),
    ] {
        let output = run(&[&["--json", "next"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty());
        let problem: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(
            (&problem["kind"], &problem["reason"]),
            (&json!("invalid"), &json!(reason))
        );
        assert_eq!(
            problem["field"].as_str().unwrap_or_default(),
            field,
            "{problem}"
        );
    }
    let output = run(&["next", "2 1"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.starts_with("error: timing: '2 1' has 2 fields"),
        "{text}"
    );
}
