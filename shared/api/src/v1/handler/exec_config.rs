//! Settings of the handler `exec`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{check_result_max, result_bytes_default, within, wrong};
use crate::ApiError;

/// Settings of the handler `exec`: it runs a command on the executor's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// Program and arguments; no shell takes part.
    pub command: Vec<String>,
    /// Environment variables to set.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Directory to run in; the executor's own when absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Exit codes that are worth another try though they are not by default.
    #[serde(default)]
    pub retriable_exit_codes: Vec<u8>,
    /// Exit codes that are not worth another try, besides the default ones.
    #[serde(default)]
    pub fatal_exit_codes: Vec<u8>,
    /// Most bytes of output kept as the result.
    #[serde(default = "result_bytes_default")]
    #[schema(default = result_bytes_default, maximum = 262144)]
    pub result_max_bytes: usize,
    /// How the command gets the task's input.
    #[serde(default)]
    pub input: ExecInput,
}

/// How a command gets the task's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecInput {
    /// On its standard input.
    #[default]
    Stdin,
    /// Not at all.
    None,
    /// Its standard input is what the task's predecessors have returned, one after the other.
    Results,
}

impl ExecConfig {
    /// Reads the settings of a job and checks them; errors name the field as seen from the job.
    pub fn parse(config: &str) -> Result<Self, ApiError> {
        let config: Self = within(config)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ApiError> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err(wrong("command", "must name a program"));
        }
        if self.command.iter().any(|text| text.contains('\0')) {
            return Err(wrong("command", "may hold no NUL character"));
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                let message = "holds a name that is empty or has '=' or NUL in it";
                return Err(wrong("env", message));
            }
            if value.contains('\0') {
                let message = format!("the value of '{name:.64}' holds a NUL character");
                return Err(wrong("env", message));
            }
        }
        let fatal = &self.fatal_exit_codes;
        if fatal.contains(&0) || self.retriable_exit_codes.contains(&0) {
            return Err(wrong("fatal_exit_codes", "exit code 0 is success"));
        }
        if self
            .retriable_exit_codes
            .iter()
            .any(|code| fatal.contains(code))
        {
            let message = "holds a code that is retriable too";
            return Err(wrong("fatal_exit_codes", message));
        }
        check_result_max(self.result_max_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_command_that_cannot_work_are_refused_by_field() {
        for (bad, field, why) in [
            ("{}", "command", "missing field"),
            (r#"[["a"]]"#, "", "an array"),
            (r#"{"command": []}"#, "command", "a program"),
            (r#"{"command": [""]}"#, "command", "a program"),
            (r#"{"command": ["a\u0000"]}"#, "command", "NUL"),
            (r#"{"command": ["a"], "shell": 1}"#, "shell", "unknown"),
            (r#"{"command": ["a"], "env": {"A=": ""}}"#, "env", "'='"),
            (r#"{"command": ["a"], "env": {"": ""}}"#, "env", "empty"),
            (
                r#"{"command": ["a"], "env": {"A": "\u0000"}}"#,
                "env",
                "'A'",
            ),
            (
                r#"{"command": ["a"], "fatal_exit_codes": [256]}"#,
                "fatal_exit_codes[0]",
                "256",
            ),
            (
                r#"{"command": ["a"], "retriable_exit_codes": [0]}"#,
                "fatal_exit_codes",
                "success",
            ),
            (
                r#"{"command": ["a"], "fatal_exit_codes": [3], "retriable_exit_codes": [3]}"#,
                "fatal_exit_codes",
                "retriable too",
            ),
            (
                r#"{"command": ["a"], "result_max_bytes": 262145}"#,
                "result_max_bytes",
                "262144",
            ),
        ] {
            let error = ExecConfig::parse(bad).unwrap_err();
            let field = format!("handler.config.{field}");
            assert_eq!(error.field(), Some(field.trim_end_matches('.')), "{bad}");
            assert!(error.message().contains(why), "{bad}: {error}");
        }
    }
}
