//! The `exec` handler: runs a command.

use std::{
    collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt as _, process::ExitStatus,
};

use async_trait::async_trait;
use bytes::Bytes;
use dueline_api::{
    PredecessorResult,
    v1::{ExecConfig, ExecInput},
};
use dueline_domain::{RetryClass, TaskEnd};

use super::{cut_result, exec_process, exec_process::ExitedCommand, invalid_settings};
use crate::{Failure, Handler, HandlerResult, RunningTask, Success};

/// Exit codes that are fatal unless the job's settings say otherwise: wrong usage (64), wrong data (65), no input (66),
/// no permission (77) and wrong configuration (78) of the BSD list `sysexits`, and the shells' "found but not runnable"
/// (126) and "not found" (127).
const FATAL_EXIT_CODES: [u8; 7] = [64, 65, 66, 77, 78, 126, 127];

/// The executor's environment variables that the child inherits. Others, such as credentials, are not passed on.
const INHERITED_VARIABLES: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// Runs the command of the job's settings.
pub(crate) struct ExecHandler;

#[async_trait]
impl Handler for ExecHandler {
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        let config = ExecConfig::parse(task.handler_config());
        let config = config.map_err(|error| invalid_settings(&error))?;
        let input = match config.input {
            ExecInput::Results => joined(task.results())?,
            ExecInput::Stdin | ExecInput::None => task.input().clone(),
        };
        let env = environment(&config, task);
        let exited = exec_process::run(&config, env, &input, task).await?;
        let ExitedCommand {
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

/// The child's environment: inherited variables, the job's, and those that describe the task, which take precedence.
fn environment(config: &ExecConfig, task: &RunningTask) -> BTreeMap<String, OsString> {
    let inherited = INHERITED_VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?)));
    let mut env: BTreeMap<_, _> = inherited.collect();
    let of_job = config.env.iter();
    env.extend(of_job.map(|(name, value)| (name.clone(), value.into())));
    let of_task = [
        ("DUELINE_JOB", task.job().to_string()),
        ("DUELINE_TASK_ID", task.id().to_string()),
        ("DUELINE_TASK_NAME", task.name().unwrap_or("").to_owned()),
        ("DUELINE_ATTEMPT", task.attempt().to_string()),
        ("DUELINE_TOKEN", task.token().to_string()),
        ("DUELINE_RUN_AT", task.run_at().millis().to_string()),
    ];
    if let Some(trace) = task.trace() {
        env.insert("TRACEPARENT".to_owned(), trace.replace('\0', "").into());
    }
    for (number, one) in task.results().iter().enumerate() {
        env.extend(of_result(number, one));
    }
    for (name, value) in of_task {
        // A task's name may contain NUL; a variable cannot.
        env.insert(name.to_owned(), value.replace('\0', "").into());
    }
    env
}

/// The variables that describe what one predecessor has returned.
fn of_result(number: usize, one: &PredecessorResult) -> Vec<(String, OsString)> {
    let name = format!("DUELINE_RESULT_{number}");
    let end = one.end.map_or("", TaskEnd::name);
    let bytes = one.bytes.map(|bytes| bytes.to_string());
    let mut variables = vec![
        (format!("{name}_TASK"), one.task.to_string().into()),
        (format!("{name}_END"), end.into()),
        (format!("{name}_BYTES"), bytes.unwrap_or_default().into()),
    ];
    // A variable cannot contain NUL. Standard input can.
    let result = one.result.as_ref().filter(|bytes| !bytes.contains(&0));
    variables.extend(result.map(|bytes| (name, OsString::from_vec(bytes.to_vec()))));
    variables
}

/// What the predecessors have returned, one after the other. One that was not passed on makes the run useless.
fn joined(results: &[PredecessorResult]) -> Result<Bytes, Failure> {
    if let Some(one) = results.iter().find(|one| one.is_only_named()) {
        let (task, bytes) = (&one.task, one.bytes.unwrap_or_default());
        let max = dueline_domain::limits().results_bytes_max;
        return Err(Failure::fatal(format!(
            "predecessor {task} has returned {bytes} bytes, and all results of predecessors together may have {max}"
        )));
    }
    let results = results.iter().filter_map(|one| one.result.as_ref());
    Ok(results.flatten().copied().collect())
}

/// The exit status and the end of the error output, with a mark if its beginning is missing. Stays within the limit of
/// error texts, which would cut off the end otherwise.
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
    let prefix = |kept: usize| format!("{status}: [cut: last {kept} of {stderr_len} bytes]\n");
    let room = max.saturating_sub(prefix(max).len());
    let end = &text[text.ceil_char_boundary(text.len().saturating_sub(room))..];
    format!("{}{end}", prefix(end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_may_change_which_exit_codes_are_fatal_and_which_retriable() {
        let json = r#"{"command": ["a"], "fatal_exit_codes": [3], "retriable_exit_codes": [65]}"#;
        let config = ExecConfig::parse(json).unwrap();
        let fatal = [1, 3, 64, 65, 127].map(|code| is_fatal(code, &config));
        assert_eq!(fatal, [false, true, true, false, true]);
    }

    #[test]
    fn an_error_keeps_the_end_of_the_error_output_and_says_how_much_is_missing() {
        let status = ExitStatus::default();
        assert_eq!(error_text(status, b" why \n", 6), "exit status: 0: why");
        let max = dueline_domain::limits().error_bytes_max;
        for (len, total) in [(max, max), (max, 70_000), (100, 70_000)] {
            let stderr = format!("{}end", "ä".repeat(max))
                .into_bytes()
                .split_off(2 * max + 3 - len);
            let error = error_text(status, &stderr, total);
            assert!(error.len() <= max, "{} bytes", error.len());
            assert!(error.starts_with("exit status: 0: [cut: last "), "{error}");
            assert!(error.contains(&format!(" of {total} bytes]\n")), "{error}");
            assert!(error.ends_with("äend"), "{error}");
        }
    }
}
