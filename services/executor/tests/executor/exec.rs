//! The `exec` handler with real commands, in real time.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_api::{Action, Assignment, Reported};
use dueline_domain::Outcome;
use dueline_executor::{BuiltIn, Registry};
use tokio::time::Instant;

use crate::fake::{built_in, error_of, ms, ok, result_of};
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
    rig.work.push([task]);
    let outcome = rig.work.outcome().await;
    rig.drain().await;
    outcome
}

/// Waits until a file has something in it.
async fn content(path: &Path) -> String {
    for _ in 0..3_000 {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => tokio::time::sleep(ms(10)).await,
        }
    }
    panic!("{} stayed empty", path.display())
}

/// Whether a process is there and not a zombie.
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
    panic!("process {pid} is still there")
}

#[tokio::test]
async fn the_output_of_a_command_is_the_result_and_its_input_the_payload() {
    let config = r#"{"command": ["/bin/cat"]}"#;
    let payload = Bytes::from(vec![b'p'; 300_000]);
    let outcome = outcome_of(built_in("exec", config, "hello")).await;
    assert_eq!(result_of(&outcome), b"hello");
    // Far more than a pipe holds, in both directions, and more than may be kept.
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
async fn exit_codes_decide_whether_it_is_tried_again() {
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
async fn what_cannot_be_run_at_all_is_fatal() {
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
async fn a_folder_that_cannot_be_used_is_told_apart_from_a_program_that_cannot_be_run() {
    for (program, cwd, wanted) in [
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
        assert!(is_fatal && error.starts_with(wanted), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_command_sees_its_task_and_nothing_of_our_environment() {
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
    let is_ours = |line: &&str| line.starts_with("CARGO");
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert_eq!(lines.iter().filter(|it| is_ours(it)).count(), 0, "{text}");
}

#[tokio::test]
async fn a_child_left_behind_with_the_pipes_does_not_hold_up_the_run() {
    let begun = Instant::now();
    let outcome = outcome_of(script("echo out; sleep 30 & exit 0", "")).await;
    assert_eq!(result_of(&outcome), b"out\n");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

fn cancelling(rig: &Rig) {
    rig.work.answer(|report| {
        Ok(Reported {
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
    rig.work.push([script(&trap, "")]);
    content(&ready).await;
    cancelling(&rig);
    assert_eq!(rig.work.outcome().await, Outcome::Cancelled);
    assert_eq!(content(&cleaned).await, "cleaned\n");
    rig.drain().await;
}

#[tokio::test]
async fn g_08_a_command_that_ignores_sigterm_is_killed_with_all_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let path = file.display();
    let deaf = format!(
        "trap '' TERM; /bin/sh -c 'trap \"\" TERM; echo $$ > {path}; while :; do sleep 0.02; done' & wait; wait"
    );
    let rig = rig();
    rig.work.push([script(&deaf, "")]);
    let pid = content(&file).await;
    assert!(is_alive(&pid));
    cancelling(&rig);
    let begun = Instant::now();
    assert_eq!(rig.work.outcome().await, Outcome::Cancelled);
    assert!(begun.elapsed() >= ms(400), "the grace was not given");
    until_dead(&pid).await;
    rig.drain().await;
}

#[tokio::test]
async fn children_die_with_a_leader_that_obeys_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let path = file.display();
    let half_deaf = format!(
        "/bin/sh -c 'trap \"\" TERM; echo $$ > {path}; while :; do sleep 0.02; done' & exec sleep 60"
    );
    let rig = rig();
    rig.work.push([script(&half_deaf, "")]);
    let pid = content(&file).await;
    rig.shutdown.stop_work();
    let work = rig.work.clone();
    rig.ended().await.unwrap();
    until_dead(&pid).await;
    assert_eq!(work.actions().last(), Some(&Action::Abandon));
}

/// Answers as a status controller does, with what is left until the heartbeat timeout or the deadline.
fn answering(rig: &Rig, run_timeout: Option<Duration>, heartbeat_timeout: Duration) {
    let mut deadline = None;
    rig.work.answer(move |report| {
        let now = Instant::now();
        if matches!(report.action, Action::Start) {
            deadline = run_timeout.map(|limit| now + limit);
        }
        let left = deadline.map_or(heartbeat_timeout, |at| {
            at.saturating_duration_since(now).min(heartbeat_timeout)
        });
        Ok(Reported {
            lease: Some(left),
            ..ok()?
        })
    });
}

#[tokio::test]
async fn a_run_timeout_is_used_up_nearly_to_its_end_and_no_further() {
    let hour = Duration::from_secs(3_600);
    for (seconds, limit_ms, is_enough) in [
        ("0.2", 500, true),
        ("0.6", 1_000, true),
        ("3", 1_000, false),
        ("3", 400, false),
    ] {
        for (start_first, is_fixed) in [(false, false), (true, false), (false, true)] {
            // Either the run timeout, or a heartbeat timeout to which heartbeats add nothing.
            let limit = ms(limit_ms);
            let run_timeout = (!is_fixed).then_some(limit);
            let heartbeat_timeout = if is_fixed { limit } else { ms(8_000) };
            let rig = rig();
            answering(&rig, run_timeout, heartbeat_timeout);
            let begun = Instant::now();
            rig.work.push([Assignment {
                run_timeout,
                heartbeat_timeout,
                heartbeat_increment: if is_fixed { Duration::ZERO } else { ms(8_000) },
                start_first,
                claim_timeout: hour,
                ..script(&format!("sleep {seconds}"), "")
            }]);
            let outcome = rig.work.outcome().await;
            let what = format!("{seconds} s under {limit:?}: {outcome:?}");
            if is_enough {
                assert!(matches!(outcome, Outcome::Success { .. }), "{what}");
            } else {
                assert_eq!(error_of(&outcome).1, "ran past its run timeout", "{what}");
                assert!(begun.elapsed() > limit * 4 / 5, "{what}");
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
    let deaf = format!(
        "trap '' TERM; /bin/sh -c 'trap \"\" TERM; echo $$ > {path}; while :; do sleep 0.02; done' & wait; wait"
    );
    let rig = rig();
    rig.work.push([script(&deaf, "")]);
    let pid = content(&file).await;
    assert!(is_alive(&pid));
    assert_eq!(rig.executor.kill_all(), 1);
    until_dead(&pid).await;
    // It did not fail by itself, so no try is used.
    rig.work
        .reported(1, |it| matches!(it, Action::Abandon))
        .await;
    assert_eq!(rig.executor.kill_all(), 0);
    rig.drain().await;
}
