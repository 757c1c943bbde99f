//! Runs a command.

use std::{collections::BTreeMap, process::ExitStatus};

use async_trait::async_trait;
use bytes::Bytes;
use dueline_api::v1::ExecConfig;
use dueline_domain::RetryClass;

use super::{cut_result, exec_process, exec_process::Exited, unusable};
use crate::{Failure, Handler, HandlerResult, RunningTask, Success};

/// Exit codes that mean that trying again is of no use, unless a job says otherwise: wrong usage (64), wrong data
/// (65), no input (66), no permission (77), wrong configuration (78), as the BSD list `sysexits` has them, and the
/// shells' "found but not runnable" (126) and "not found" (127).
const FATAL_EXIT_CODES: [u8; 7] = [64, 65, 66, 77, 78, 126, 127];

/// What the child keeps of our own environment. All else, such as credentials, stays here.
const KEPT_VARIABLES: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// The handler.
pub(crate) struct Exec;

#[async_trait]
impl Handler for Exec {
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        let config = ExecConfig::parse(task.handler_config()).map_err(|error| unusable(&error))?;
        let exited = exec_process::run(&config, environment(&config, task), task).await?;
        let Exited {
            status,
            stderr,
            stderr_len,
            ..
        } = &exited;
        if status.success() {
            let stdout = cut_result(
                exited.stdout,
                config.result_max_bytes,
                Some(exited.stdout_len),
            );
            let result = Some(Bytes::from(stdout));
            return Ok(Success { result });
        }
        if exited.was_stopped {
            return Err(Failure::Cancelled);
        }
        let error = error_text(*status, stderr, *stderr_len);
        match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(code) if is_fatal(code, &config) => Err(Failure::fatal(error)),
            _ => Err(Failure::retriable(RetryClass::Standard, error)),
        }
    }
}

fn is_fatal(code: u8, config: &ExecConfig) -> bool {
    !config.retriable_exit_codes.contains(&code)
        && (config.fatal_exit_codes.contains(&code) || FATAL_EXIT_CODES.contains(&code))
}

/// The child's variables: a few of ours, the job's, and what tells about the task, which nothing may hide.
fn environment(config: &ExecConfig, task: &RunningTask) -> BTreeMap<String, std::ffi::OsString> {
    let kept = KEPT_VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?)));
    let mut env: BTreeMap<_, _> = kept.collect();
    let given = config.env.iter();
    env.extend(given.map(|(name, value)| (name.clone(), value.into())));
    let told = [
        ("DUELINE_JOB", task.job().to_string()),
        ("DUELINE_TASK_ID", task.id().to_string()),
        ("DUELINE_TASK_NAME", task.name().unwrap_or("").to_owned()),
        ("DUELINE_ATTEMPT", task.attempt().to_string()),
        ("DUELINE_TOKEN", task.token().to_string()),
        ("DUELINE_RUN_AT", task.run_at().millis().to_string()),
    ];
    for (name, value) in told {
        // A task's name is a text of the user's; a variable cannot hold NUL.
        env.insert(name.to_owned(), value.replace('\0', "").into());
    }
    env
}

/// How the command ended and the end of what it said, with a mark where something is missing before that. It fits
/// into what is kept of an error, which would lose its end otherwise.
fn error_text(status: ExitStatus, stderr: &[u8], stderr_len: usize) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    // "exit status: 3" or "signal: 9 (SIGKILL)".
    if text.is_empty() {
        return status.to_string();
    }
    let max = dueline_domain::limits().error_bytes_max;
    let whole = format!("{status}: {text}");
    if stderr_len <= stderr.len() && whole.len() <= max {
        return whole;
    }
    let with = |kept: usize| format!("{status}: [cut: last {kept} of {stderr_len} bytes]\n");
    let room = max.saturating_sub(with(max).len());
    let end = &text[text.ceil_char_boundary(text.len().saturating_sub(room))..];
    format!("{}{end}", with(end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_may_shift_the_line_between_fatal_and_retriable() {
        let json = r#"{"command": ["a"], "fatal_exit_codes": [3], "retriable_exit_codes": [65]}"#;
        let config = ExecConfig::parse(json).unwrap();
        let fatal = [1, 3, 64, 65, 127].map(|code| is_fatal(code, &config));
        assert_eq!(fatal, [false, true, true, false, true]);
    }

    #[test]
    fn an_error_keeps_the_end_of_what_the_command_said_and_tells_of_the_rest() {
        let status = ExitStatus::default();
        assert_eq!(error_text(status, b" why \n", 6), "exit status: 0: why");
        let max = dueline_domain::limits().error_bytes_max;
        for (len, total) in [(max, max), (max, 70_000), (100, 70_000)] {
            let said = format!("{}end", "ä".repeat(max))
                .into_bytes()
                .split_off(2 * max + 3 - len);
            let error = error_text(status, &said, total);
            assert!(error.len() <= max, "{} bytes", error.len());
            assert!(error.starts_with("exit status: 0: [cut: last "), "{error}");
            assert!(error.contains(&format!(" of {total} bytes]\n")), "{error}");
            assert!(error.ends_with("äend"), "{error}");
        }
    }
}
