//! How a command ends: exit codes for scripts, one line and a hint for people, a problem document for programs.

use std::{fmt, io};

use dueline_api::{ApiError, ErrorKind, v1::Problem};
use dueline_domain::StateKind;
use serde::Serialize;
use serde_json::{Map, Value};

/// Exit codes. They never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// It worked.
    Ok = 0,
    /// A fault of the program or the server.
    Internal = 1,
    /// The command line or the request is wrong.
    Invalid = 2,
    /// No such job, task or table.
    NotFound = 3,
    /// The present state stands against it.
    Conflict = 4,
    /// The server cannot be reached, or there was no answer in time.
    Unavailable = 5,
    /// The task that was waited for ended without success.
    Unsuccessful = 6,
    /// Not allowed.
    Denied = 7,
    /// A demo, a benchmark or the doctor found something wrong.
    VerifyFailed = 8,
    /// Some tasks of a batch were refused.
    Partial = 9,
    /// A server or worker was stopped, and running tasks did not end within the grace.
    GivenBack = 10,
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
        Self::GivenBack,
    ];

    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What it says.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "it worked",
            Self::Internal => "a fault of the program or the server",
            Self::Invalid => "the command line or the request is wrong",
            Self::NotFound => "there is no such job, task or table",
            Self::Conflict => "the present state stands against it",
            Self::Unavailable => "the server cannot be reached, or there was no answer in time",
            Self::Unsuccessful => "the task that was waited for ended without success",
            Self::Denied => "not allowed",
            Self::VerifyFailed => "a demo, a benchmark or the doctor found something wrong",
            Self::Partial => "some tasks of a batch were refused",
            Self::GivenBack => "running tasks did not end within the grace and were given back",
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

/// Why a command did not work.
#[derive(Debug)]
pub struct CliError {
    problem: Box<Problem>,
    hint: Option<String>,
    /// What else programs are told, beside the members of the problem.
    members: Map<String, Value>,
    /// Nobody reads the output any more, which is no fault and not worth a word.
    closed: bool,
}

impl CliError {
    /// An error of this side.
    pub fn new(kind: ErrorKind, reason: &'static str, message: impl Into<String>) -> Self {
        Self::from(ApiError::new(kind, reason, message))
    }

    /// The command line, or what it names, is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, "usage", message)
    }

    /// Adds what may help.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the fields of `told` to what programs read.
    #[must_use]
    pub fn with_members(mut self, told: &impl Serialize) -> Self {
        if let Ok(Value::Object(members)) = serde_json::to_value(told) {
            self.members = members;
        }
        self
    }

    /// Tells it on standard error, and how the process must end.
    pub fn report(&self, json: bool) -> Exit {
        if self.closed {
            return Exit::Ok;
        }
        if json {
            let told = Told {
                problem: &self.problem,
                members: &self.members,
            };
            eprintln!("{}", serde_json::to_string(&told).unwrap_or_default());
        } else {
            eprintln!("error: {}", crate::output::clean(&self.problem.detail));
            if let Some(hint) = self.hint() {
                eprintln!("hint: {hint}");
            }
        }
        self.exit()
    }

    /// How the process must end.
    pub fn exit(&self) -> Exit {
        ErrorKind::from_name(&self.problem.kind)
            .unwrap_or(ErrorKind::Internal)
            .into()
    }

    /// The state of the task that stood against the call.
    pub fn state(&self) -> Option<StateKind> {
        self.problem.state
    }

    fn hint(&self) -> Option<&str> {
        self.hint.as_deref().or(match self.problem.reason.as_str() {
            "unknown_job" => Some("`dueline job list` shows the jobs there are"),
            "unknown_task" => Some("`dueline task list JOB` shows the tasks of a job"),
            _ if self.exit() == Exit::Internal => Some("this should not happen; please report it"),
            _ => None,
        })
    }
}

/// A problem document with members of its own.
#[derive(Serialize)]
struct Told<'a> {
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
        // By way of the domain error, which fills in what a proxy on the way may have left out.
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
            closed: false,
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        let closed = error.kind() == io::ErrorKind::BrokenPipe;
        let error = Self::new(ErrorKind::Internal, "io", error.to_string());
        Self { closed, ..error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_148_kinds_of_errors_have_exit_codes_of_their_own() {
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
    fn a_reader_that_went_away_is_no_fault() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.report(false), Exit::Ok);
    }
}
