//! Runs a command.

use std::{collections::BTreeMap, path::PathBuf, process::ExitStatus};

use async_trait::async_trait;
use bytes::Bytes;
use dueline_domain::RetryClass;
use serde::Deserialize;

use super::{
    SettingsError, check_result_max, cut_result, exec_process, exec_process::Exited, from_json,
    result_bytes_default,
};
use crate::{Failure, Handler, HandlerResult, RunningTask, Success};

/// Exit codes that mean that trying again is of no use, unless a job says otherwise: wrong usage (64), wrong data
/// (65), no input (66), no permission (77), wrong configuration (78), as the BSD list `sysexits` has them, and the
/// shells' "found but not runnable" (126) and "not found" (127).
const FATAL_EXIT_CODES: [u8; 7] = [64, 65, 66, 77, 78, 126, 127];

/// What the child keeps of our own environment. All else, such as credentials, stays here.
const KEPT_VARIABLES: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// Settings of the `exec` handler.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// Program and arguments. No shell is involved unless it is named here.
    pub command: Vec<String>,
    /// Variables for the child, besides the few it always gets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where to run it; the executor's own working directory when absent.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Exit codes that are worth another try though they are not by default.
    #[serde(default)]
    pub retriable_exit_codes: Vec<u8>,
    /// Exit codes that are not worth another try, besides the default ones.
    #[serde(default)]
    pub fatal_exit_codes: Vec<u8>,
    /// Most of the output that becomes the result.
    #[serde(default = "result_bytes_default")]
    pub result_max_bytes: usize,
    /// How the child gets the task's input.
    #[serde(default)]
    pub input: ExecInput,
}

/// How the child gets the task's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecInput {
    /// On its standard input.
    #[default]
    Stdin,
    /// Not at all: its standard input is empty.
    None,
}

/// Reads and checks the settings of an `exec` job.
pub fn parse(config: &str) -> Result<ExecConfig, SettingsError> {
    let wrong = |message: &str| Err(SettingsError::new("exec", message));
    let config: ExecConfig = from_json("exec", config)?;
    if config.command.first().is_none_or(String::is_empty) {
        return wrong("command must name a program");
    }
    let has_nul = |text: &String| text.contains('\0');
    if config.command.iter().any(has_nul) || config.env.values().any(has_nul) {
        return wrong("command and env must not hold NUL characters");
    }
    let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
    if !config.env.keys().all(is_name) {
        return wrong("env holds a name that is empty or has '=' in it");
    }
    let is_fatal = |code| config.fatal_exit_codes.contains(code);
    if config.retriable_exit_codes.iter().any(is_fatal) {
        return wrong("an exit code is both retriable and fatal");
    }
    if is_fatal(&0) || config.retriable_exit_codes.contains(&0) {
        return wrong("exit code 0 is success");
    }
    check_result_max("exec", config.result_max_bytes)?;
    Ok(config)
}

/// The handler.
pub(crate) struct Exec;

#[async_trait]
impl Handler for Exec {
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        let config = match parse(task.handler_config()) {
            Ok(config) => config,
            Err(error) => return Err(Failure::fatal(error.to_string())),
        };
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
            Some(code) if config.is_fatal(code) => Err(Failure::fatal(error)),
            _ => Err(Failure::retriable(RetryClass::Standard, error)),
        }
    }
}

impl ExecConfig {
    fn is_fatal(&self, code: u8) -> bool {
        !self.retriable_exit_codes.contains(&code)
            && (self.fatal_exit_codes.contains(&code) || FATAL_EXIT_CODES.contains(&code))
    }
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
    fn settings_that_cannot_work_are_refused() {
        for (bad, why) in [
            (r"{}", "missing field `command`"),
            (r#"{"command": []}"#, "command must name a program"),
            (r#"{"command": [""]}"#, "command must name a program"),
            (
                r#"{"command": ["a"], "shell": true}"#,
                "unknown field `shell`",
            ),
            (r#"{"command": ["a\u0000"]}"#, "NUL"),
            (r#"{"command": ["a"], "env": {"A=B": ""}}"#, "env"),
            (
                r#"{"command": ["a"], "result_max_bytes": 262145}"#,
                "262144",
            ),
            (r#"{"command": ["a"], "fatal_exit_codes": [256]}"#, "256"),
            (r#"{"command": ["a"], "fatal_exit_codes": [0]}"#, "success"),
            (
                r#"{"command": ["a"], "fatal_exit_codes": [3], "retriable_exit_codes": [3]}"#,
                "both",
            ),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_job_may_shift_the_line_between_fatal_and_retriable() {
        let json = r#"{"command": ["a"], "fatal_exit_codes": [3], "retriable_exit_codes": [65]}"#;
        let config = parse(json).unwrap();
        let fatal = [1, 3, 64, 65, 127].map(|code| config.is_fatal(code));
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
