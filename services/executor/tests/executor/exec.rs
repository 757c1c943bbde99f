//! The `exec` handler with real commands, in real time.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_api::{Action, Assignment, ReportAck};
use dueline_domain::{Outcome, Policy};
use dueline_executor::{BuiltIn, Registry};
use tokio::time::Instant;

use crate::fake::{built_in, error_of, ms, ok, result, result_of};
use crate::rig::Rig;

fn rig() -> Rig {
    let exec = BuiltIn {
        exec: true,
        ..BuiltIn::default()
    };
    let quick = |config: &mut dueline_executor::Config| {
        config.heartbeat_interval = ms(50);
        config.kill_grace = ms(400);
    };
    Rig::with(quick, Registry::built_in(exec))
}

/// A task that runs a shell script.
fn script(script: &str, more: &str) -> Assignment {
    let script = serde_json::to_string(script).unwrap();
    let config = format!(r#"{{"command": ["/bin/sh", "-c", {script}]{more}}}"#);
    built_in("exec", &config, "")
}

async fn outcome_of(task: Assignment) -> Outcome {
    let rig = rig();
    rig.controller.push([task]);
    let outcome = rig.controller.outcome().await;
    rig.drain().await;
    outcome
}

/// Waits until a file has a complete line, and returns its content.
async fn content(path: &Path) -> String {
    for _ in 0..3_000 {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => tokio::time::sleep(ms(10)).await,
        }
    }
    panic!("{} stayed empty", path.display())
}

/// Whether a process exists and is not a zombie.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

async fn until_dead(pid: &str) {
    for _ in 0..3_000 {
        if !is_alive(pid) {
            return;
        }
        tokio::time::sleep(ms(10)).await;
    }
    panic!("process {pid} is still alive")
}

#[tokio::test]
async fn the_output_of_a_command_is_the_result_and_its_input_the_payload() {
    let config = r#"{"command": ["/bin/cat"]}"#;
    let payload = Bytes::from(vec![b'p'; 300_000]);
    let outcome = outcome_of(built_in("exec", config, "hello")).await;
    assert_eq!(result_of(&outcome), b"hello");
    // Far more than a pipe holds, in both directions, and more than a result may have.
    let outcome = outcome_of(built_in("exec", config, payload)).await;
    let result = result_of(&outcome);
    assert!(result.len() <= 64 * 1024);
    let kept = result.iter().take_while(|byte| **byte == b'p').count();
    assert!(kept > 65_000);
    let mark = format!("\n[cut: {kept} of 300000 bytes]");
    assert_eq!(&result[kept..], mark.as_bytes());
}

#[tokio::test]
async fn a_command_may_ignore_its_input() {
    let task = Assignment {
        input: Bytes::from(vec![0; 1 << 20]),
        ..script("echo ok", "")
    };
    assert_eq!(result_of(&outcome_of(task).await), b"ok\n");
    let task = Assignment {
        input: Bytes::from("something"),
        ..script("cat", r#", "input": "none""#)
    };
    assert_eq!(result_of(&outcome_of(task).await), b"");
}

#[tokio::test]
async fn f_095_a_command_gets_what_its_predecessors_have_returned() {
    let show = r#"cat; echo; env | grep DUELINE_RESULT | sort"#;
    let task = Assignment {
        results: vec![result(1, Some(b"a b")), result(2, Some(b"\0\xff"))],
        ..script(show, r#", "input": "results""#)
    };
    let of = |number: usize| task.results[number].task.to_string();
    let (first, second) = (of(0), of(1));
    let mut text = b"a b\0\xff\nDUELINE_RESULT_0=a b\nDUELINE_RESULT_0_BYTES=3\n".to_vec();
    // A variable cannot contain NUL, so the second result is only on standard input.
    text.extend(
        format!(
            "DUELINE_RESULT_0_END=succeeded\nDUELINE_RESULT_0_TASK={first}\n\
             DUELINE_RESULT_1_BYTES=2\nDUELINE_RESULT_1_END=succeeded\n\
             DUELINE_RESULT_1_TASK={second}\n"
        )
        .bytes(),
    );
    assert_eq!(result_of(&outcome_of(task).await), text);

    let too_large = |input: &str| Assignment {
        results: vec![result(1, Some(b"a")), result(2, None)],
        ..script("cat; echo $DUELINE_RESULT_1_BYTES", input)
    };
    let outcome = outcome_of(too_large(r#", "input": "results""#)).await;
    let (is_fatal, error) = error_of(&outcome);
    assert!(
        is_fatal && error.contains("has returned 70000 bytes"),
        "{error}"
    );
    let outcome = outcome_of(too_large("")).await;
    assert_eq!(result_of(&outcome), b"70000\n");
}

#[tokio::test]
async fn exit_codes_decide_whether_a_failure_is_retriable() {
    let more = r#", "fatal_exit_codes": [3], "retriable_exit_codes": [65]"#;
    for (exit, is_fatal) in [
        ("exit 1", false),
        ("exit 3", true),
        ("exit 64", true),
        ("exit 65", false),
        ("exit 77", true),
        ("exit 126", true),
        ("exit 255", false),
        ("kill -9 $$", false),
    ] {
        let outcome = outcome_of(script(&format!("echo because >&2; {exit}"), more)).await;
        let (fatal, error) = error_of(&outcome);
        assert_eq!(fatal, is_fatal, "{exit}: {error}");
        assert!(error.ends_with("because"), "{error}");
    }
}

#[tokio::test]
async fn the_end_of_the_error_output_is_kept() {
    let noise = "i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done; exit 9";
    let outcome = outcome_of(script(noise, "")).await;
    let (_, error) = error_of(&outcome);
    assert!(error.starts_with("exit status: 9: [cut: last "), "{error}");
    assert!(!error.contains("line 1\n") && error.ends_with("line 1999"));
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_a_fatal_failure() {
    for config in [
        r#"{"command": ["/no/such/command"]}"#,
        r#"{"command": ["/etc/passwd"]}"#,
        r#"{"command": ["/bin/true"], "cwd": "/no/such/directory"}"#,
        r#"{"command": "true"}"#,
        r"not json",
    ] {
        let outcome = outcome_of(built_in("exec", config, "")).await;
        assert!(error_of(&outcome).0, "{config}: {outcome:?}");
    }
}

#[tokio::test]
async fn the_error_says_whether_the_folder_or_the_program_is_wrong() {
    for (program, cwd, expected) in [
        (
            "true",
            "/no/such/folder",
            "failed to use the folder '/no/such/folder' to run 'true': No such file",
        ),
        (
            "true",
            "/etc/passwd",
            "failed to use the folder '/etc/passwd' to run 'true': not a directory",
        ),
        (
            "no-such-program",
            "/",
            "failed to run 'no-such-program' in '/': No such file",
        ),
    ] {
        let config = format!(r#"{{"command": ["{program}"], "cwd": "{cwd}"}}"#);
        let outcome = outcome_of(built_in("exec", &config, "")).await;
        let (is_fatal, error) = error_of(&outcome);
        assert!(is_fatal && error.starts_with(expected), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_command_gets_variables_of_its_task_and_not_the_executors_environment() {
    let task = Assignment {
        attempt: 4,
        name: Some(Arc::from("a name")),
        ..script("env", r#", "env": {"MINE": "1", "DUELINE_JOB": "forged"}"#)
    };
    let (id, token) = (task.id, task.token);
    let outcome = outcome_of(task).await;
    let text = String::from_utf8(result_of(&outcome).to_vec()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    for line in [
        "MINE=1",
        "DUELINE_JOB=job",
        "DUELINE_ATTEMPT=4",
        "DUELINE_TASK_NAME=a name",
        "DUELINE_RUN_AT=1000000",
        &format!("DUELINE_TASK_ID={id}"),
        &format!("DUELINE_TOKEN={token}"),
    ] {
        assert!(lines.contains(&line), "{line} is missing in {text}");
    }
    let is_inherited = |line: &&&str| line.starts_with("CARGO");
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert_eq!(lines.iter().filter(is_inherited).count(), 0, "{text}");
}

#[tokio::test]
async fn a_child_process_that_keeps_the_pipes_open_does_not_delay_the_run() {
    let begun = Instant::now();
    let outcome = outcome_of(script("echo out; sleep 30 & exit 0", "")).await;
    assert_eq!(result_of(&outcome), b"out\n");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

fn cancelling(rig: &Rig) {
    rig.controller.answer(|report| {
        Ok(ReportAck {
            cancel_requested: matches!(report.action, Action::Heartbeat),
            ..ok()?
        })
    });
}

#[tokio::test]
async fn g_08_a_cancelled_command_gets_sigterm_and_may_clean_up() {
    let folder = tempfile::tempdir().unwrap();
    let (ready, cleaned) = (folder.path().join("ready"), folder.path().join("cleaned"));
    let trap = format!(
        "trap 'echo cleaned > {}; exit 1' TERM; echo ready > {}; while :; do sleep 0.02; done",
        cleaned.display(),
        ready.display(),
    );
    let rig = rig();
    rig.controller.push([script(&trap, "")]);
    content(&ready).await;
    cancelling(&rig);
    assert_eq!(rig.controller.outcome().await, Outcome::Cancelled);
    assert_eq!(content(&cleaned).await, "cleaned\n");
    rig.drain().await;
}

#[tokio::test]
async fn g_08_a_command_that_ignores_sigterm_is_killed_with_all_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let path = file.display();
    let ignores_sigterm = format!(
        "trap '' TERM; /bin/sh -c 'trap \"\" TERM; echo $$ > {path}; while :; do sleep 0.02; done' & wait; wait"
    );
    let rig = rig();
    rig.controller.push([script(&ignores_sigterm, "")]);
    let pid = content(&file).await;
    assert!(is_alive(&pid));
    cancelling(&rig);
    let begun = Instant::now();
    assert_eq!(rig.controller.outcome().await, Outcome::Cancelled);
    assert!(begun.elapsed() >= ms(400), "killed before the kill grace");
    until_dead(&pid).await;
    rig.drain().await;
}

#[tokio::test]
async fn children_that_ignore_sigterm_die_with_a_leader_that_obeys_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let path = file.display();
    let child_ignores_sigterm = format!(
        "/bin/sh -c 'trap \"\" TERM; echo $$ > {path}; while :; do sleep 0.02; done' & exec sleep 60"
    );
    let rig = rig();
    rig.controller.push([script(&child_ignores_sigterm, "")]);
    let pid = content(&file).await;
    rig.shutdown.stop_work();
    let controller = rig.controller.clone();
    rig.ended().await.unwrap();
    until_dead(&pid).await;
    assert_eq!(controller.actions().last(), Some(&Action::Abandon));
}

/// Answers as a status controller does, with the time left until the heartbeat timeout, or until the deadline: the grace
/// after the run timeout.
fn answering(rig: &Rig, run_timeout: Option<Duration>, heartbeat_timeout: Duration) {
    let mut deadline = None;
    rig.controller.answer(move |report| {
        let now = Instant::now();
        if matches!(report.action, Action::Start) {
            deadline = run_timeout.map(|limit| now + limit + Policy::RUN_GRACE);
        }
        let left = deadline.map_or(heartbeat_timeout, |at| {
            at.saturating_duration_since(now).min(heartbeat_timeout)
        });
        Ok(ReportAck {
            lease: Some(left),
            ..ok()?
        })
    });
}

#[tokio::test]
async fn a_26_a_run_can_use_its_whole_run_timeout_and_no_more() {
    let hour = Duration::from_secs(3_600);
    for (seconds, limit_ms, is_enough) in [
        ("0.2", 500, true),
        ("0.6", 1_000, true),
        ("3", 1_000, false),
        ("3", 400, false),
    ] {
        for (start_first, is_fixed) in [(false, false), (true, false), (false, true)] {
            // The limit is the run timeout, or a heartbeat timeout that heartbeats do not extend.
            let limit = ms(limit_ms);
            let run_timeout = (!is_fixed).then_some(limit);
            let heartbeat_timeout = if is_fixed { limit } else { ms(8_000) };
            let rig = rig();
            answering(&rig, run_timeout, heartbeat_timeout);
            let begun = Instant::now();
            rig.controller.push([Assignment {
                run_timeout,
                heartbeat_timeout,
                heartbeat_increment: if is_fixed { Duration::ZERO } else { ms(8_000) },
                start_first,
                claim_timeout: hour,
                ..script(&format!("sleep {seconds}"), "")
            }]);
            let outcome = rig.controller.outcome().await;
            let what = format!("{seconds} s under {limit:?}: {outcome:?}");
            if is_enough {
                assert!(matches!(outcome, Outcome::Success { .. }), "{what}");
            } else {
                assert_eq!(error_of(&outcome).1, "ran past its run timeout", "{what}");
                // A lease that no heartbeat extends has no grace, so the run stops before its end.
                let least = if is_fixed { limit * 4 / 5 } else { limit };
                assert!(begun.elapsed() > least, "{what}");
                assert!(begun.elapsed() < ms(2_500), "{what}");
            }
            rig.drain().await;
        }
    }
}

#[tokio::test]
async fn commands_can_be_killed_at_once_with_all_their_children() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let path = file.display();
    let ignores_sigterm = format!(
        "trap '' TERM; /bin/sh -c 'trap \"\" TERM; echo $$ > {path}; while :; do sleep 0.02; done' & wait; wait"
    );
    let rig = rig();
    rig.controller.push([script(&ignores_sigterm, "")]);
    let pid = content(&file).await;
    assert!(is_alive(&pid));
    assert_eq!(rig.executor.kill_all(), 1);
    until_dead(&pid).await;
    // The command was stopped and did not fail, so no try is used.
    rig.controller
        .reported(1, |it| matches!(it, Action::Abandon))
        .await;
    assert_eq!(rig.executor.kill_all(), 0);
    rig.drain().await;
}
