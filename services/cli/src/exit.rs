//! How a command ends: an exit code, and on failure one line and a hint, or a problem document with `--json`.

use std::{fmt, io};

use dueline_api::{ApiError, ErrorKind, ErrorReason, v1::Problem};
use dueline_domain::StateKind;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{output, sanitize::one_line};

/// Exit codes. The meaning of a code never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Success.
    Ok = 0,
    /// An internal error of the program or the server.
    Internal = 1,
    /// The command line or the request is invalid.
    Invalid = 2,
    /// The job, task or table does not exist.
    NotFound = 3,
    /// The request conflicts with the current state.
    Conflict = 4,
    /// The server cannot be reached, or did not respond in time.
    Unavailable = 5,
    /// The task that the command waited for ended without success.
    Unsuccessful = 6,
    /// Permission denied.
    Denied = 7,
    /// A demo, a benchmark or the doctor found a defect.
    VerifyFailed = 8,
    /// Some tasks of a batch were refused.
    Partial = 9,
    /// A server or worker was stopped, and running tasks did not end within the grace period.
    Abandoned = 10,
}

impl Exit {
    /// All codes in their order.
    pub const ALL: [Self; 11] = [
        Self::Ok,
        Self::Internal,
        Self::Invalid,
        Self::NotFound,
        Self::Conflict,
        Self::Unavailable,
        Self::Unsuccessful,
        Self::Denied,
        Self::VerifyFailed,
        Self::Partial,
        Self::Abandoned,
    ];

    /// The exit code as a number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The meaning of the exit code, as in the help text.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "success",
            Self::Internal => "an internal error of the program or the server",
            Self::Invalid => "the command line or the request is invalid",
            Self::NotFound => "the job, task or table does not exist",
            Self::Conflict => "the request conflicts with the current state",
            Self::Unavailable => "the server cannot be reached, or did not respond in time",
            Self::Unsuccessful => "the task that the command waited for ended without success",
            Self::Denied => "permission denied",
            Self::VerifyFailed => "a demo, a benchmark or the doctor found a defect",
            Self::Partial => "some tasks of a batch were refused",
            Self::Abandoned => {
                "running tasks did not end within the grace period and were abandoned"
            }
        }
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid | ErrorKind::TooLarge => Self::Invalid,
            ErrorKind::Denied => Self::Denied,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::RateLimited | ErrorKind::Unavailable | ErrorKind::Deadline => {
                Self::Unavailable
            }
            ErrorKind::Internal => Self::Internal,
        }
    }
}

/// The table of exit codes below `dueline --help`.
pub(crate) fn help() -> String {
    let lines: Vec<_> = Exit::ALL
        .iter()
        .map(|exit| format!("  {}  {}", exit.code(), exit.meaning()))
        .collect();
    format!("Exit codes:\n{}", lines.join("\n"))
}

/// Why a command failed.
#[derive(Debug)]
pub struct CliError {
    problem: Box<Problem>,
    hint: Option<String>,
    /// Additional members of the problem document that `--json` prints.
    members: Map<String, Value>,
    /// Whether the reader of the output closed it. That is not a failure and is not reported.
    is_output_closed: bool,
}

impl CliError {
    /// An error that this program found, not the server.
    pub fn new(kind: ErrorKind, reason: ErrorReason, message: impl Into<String>) -> Self {
        Self::from(ApiError::new(kind, reason, message))
    }

    /// The command line, or something that it names, is invalid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, ErrorReason::Usage, message)
    }

    /// Adds a hint: what the user can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the fields of `value` to the problem document.
    #[must_use]
    pub fn with_members(mut self, value: &impl Serialize) -> Self {
        if let Ok(Value::Object(members)) = serde_json::to_value(value) {
            self.members = members;
        }
        self
    }

    /// Prints the error to standard error and returns the exit code.
    pub fn report(&self, json: bool) -> Exit {
        if self.is_output_closed {
            return Exit::Ok;
        }
        if json {
            let document = ProblemWithMembers {
                problem: &self.problem,
                members: &self.members,
            };
            output::document(&serde_json::to_string(&document).unwrap_or_default());
        } else {
            output::note(&format!("error: {}", one_line(&self.problem.detail)));
            if let Some(hint) = self.hint() {
                output::note(&format!("hint: {}", one_line(hint)));
            }
        }
        self.exit()
    }

    /// The exit code for the error.
    pub fn exit(&self) -> Exit {
        ErrorKind::from_name(&self.problem.kind)
            .unwrap_or(ErrorKind::Internal)
            .into()
    }

    /// Whether the error has this reason.
    pub fn is_reason(&self, reason: &ErrorReason) -> bool {
        self.problem.reason == reason.name()
    }

    /// The current state of the task, where the request conflicts with it.
    pub fn state(&self) -> Option<StateKind> {
        self.problem.state
    }

    fn hint(&self) -> Option<&str> {
        self.hint.as_deref().or(match self.problem.reason.as_str() {
            "unknown_job" => Some("`dueline job list` lists all jobs"),
            "unknown_task" => Some("`dueline task list JOB` lists the tasks of a job"),
            _ if self.exit() == Exit::Internal => Some("this should not happen; please report it"),
            _ => None,
        })
    }
}

/// A problem document with additional members.
#[derive(Serialize)]
struct ProblemWithMembers<'a> {
    #[serde(flatten)]
    problem: &'a Problem,
    #[serde(flatten)]
    members: &'a Map<String, Value>,
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.detail)
    }
}

impl std::error::Error for CliError {}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> Self {
        // The conversion to `ApiError` and back fills in members that a proxy may have left out.
        let request_id = problem.request_id.clone();
        let mut error = Self::from(ApiError::from(problem));
        error.problem.request_id = request_id;
        error
    }
}

impl From<ApiError> for CliError {
    fn from(error: ApiError) -> Self {
        let problem = Box::new(Problem::from(&error));
        Self {
            problem,
            hint: None,
            members: Map::new(),
            is_output_closed: false,
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        let is_output_closed = error.kind() == io::ErrorKind::BrokenPipe;
        let error = Self::new(ErrorKind::Internal, ErrorReason::Io, error.to_string());
        Self {
            is_output_closed,
            ..error
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_148_each_kind_of_error_has_its_exit_code() {
        let code = |kind: ErrorKind| Exit::from(kind).code();
        assert_eq!(code(ErrorKind::Invalid), 2);
        assert_eq!(code(ErrorKind::NotFound), 3);
        assert_eq!(code(ErrorKind::Conflict), 4);
        assert_eq!(code(ErrorKind::Unavailable), 5);
        assert_eq!(code(ErrorKind::Deadline), 5);
        assert_eq!(code(ErrorKind::Denied), 7);
    }

    #[test]
    fn every_exit_code_is_documented_in_the_readme() {
        let readme = include_str!("../README.md");
        for exit in Exit::ALL {
            let row = format!("| {} | {} |", exit.code(), exit.meaning());
            assert!(readme.contains(&row), "'{row}' is not in README.md");
        }
    }

    #[test]
    fn a_closed_output_is_not_a_failure() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.report(false), Exit::Ok);
    }
}
