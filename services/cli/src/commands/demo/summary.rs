//! The last line of a demo.

use std::time::Duration;

use serde::Serialize;

use super::Verified;
use crate::exit::Exit;

/// What a demo did, for programs: its last line is this as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Files found.
    pub files: usize,
    /// Tasks submitted.
    pub tasks: usize,
    /// Tasks that succeeded.
    pub succeeded: usize,
    /// Tasks that did not.
    pub failed: usize,
    /// Tasks that ran more than once.
    pub retried: usize,
    /// Tasks that did not do what they had to.
    pub mismatches: usize,
    /// From the first submit to the last check.
    pub elapsed_ms: u64,
}

impl Summary {
    /// The summary of a demo over `files` files with `tasks` tasks.
    pub fn new(files: usize, tasks: usize, verified: &Verified, elapsed: Duration) -> Self {
        Self {
            files,
            tasks,
            succeeded: verified.succeeded,
            failed: verified.failed,
            retried: verified.retried,
            mismatches: verified.mismatches.len(),
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// One line of JSON without its end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// How the command ends: well only if every task did what it had to.
    pub fn exit(&self) -> Exit {
        if self.mismatches == 0 && self.failed == 0 {
            Exit::Ok
        } else {
            Exit::VerifyFailed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_json_with_these_fields_in_this_order() {
        let verified = Verified {
            succeeded: 3,
            retried: 1,
            ..Verified::default()
        };
        let summary = Summary::new(4, 3, &verified, Duration::from_millis(1_234));
        assert_eq!(
            summary.to_json(),
            r#"{"files":4,"tasks":3,"succeeded":3,"failed":0,"retried":1,"mismatches":0,"elapsed_ms":1234}"#
        );
    }

    #[test]
    fn a_mismatch_or_a_failure_ends_the_command_badly() {
        let mut summary = Summary::new(1, 1, &Verified::default(), Duration::ZERO);
        assert_eq!(summary.exit(), Exit::Ok);
        summary.mismatches = 1;
        assert_eq!(summary.exit(), Exit::VerifyFailed);
        (summary.mismatches, summary.failed) = (0, 1);
        assert_eq!(summary.exit(), Exit::VerifyFailed);
    }
}
