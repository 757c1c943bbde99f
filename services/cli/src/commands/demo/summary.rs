//! The JSON summary of a demo.

use std::time::Duration;

use serde::Serialize;

use super::Verification;
use crate::exit::Exit;

/// The summary of a demo: with `--json`, the last line of its output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DemoSummary {
    /// Files found.
    pub files: usize,
    /// Tasks submitted.
    pub tasks: usize,
    /// Tasks that succeeded.
    pub succeeded: usize,
    /// Tasks that did not succeed.
    pub failed: usize,
    /// Tasks that ran more than once.
    pub retried: usize,
    /// Tasks whose result is not the expected one.
    pub mismatches: usize,
    /// Steps of the chain that succeeded.
    pub steps: usize,
    /// Tasks that the schedule has created.
    pub firings: usize,
    /// Time from the first submit to the end of the verification.
    pub elapsed_ms: u64,
}

impl DemoSummary {
    /// The summary of a demo over `files` files with `tasks` tasks.
    pub fn new(files: usize, tasks: usize, verification: &Verification, elapsed: Duration) -> Self {
        Self {
            files,
            tasks,
            succeeded: verification.succeeded,
            failed: verification.failed,
            retried: verification.retried,
            mismatches: verification.mismatches.len() + verification.flow.defects.len(),
            steps: verification.flow.steps,
            firings: verification.flow.firings,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The summary as JSON on one line, without a line break.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The exit code: success only if every task has the expected result.
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
    fn the_summary_is_json_with_these_fields_in_this_order() {
        let verification = Verification {
            succeeded: 3,
            retried: 1,
            ..Verification::default()
        };
        let summary = DemoSummary::new(4, 3, &verification, Duration::from_millis(1_234));
        assert_eq!(
            summary.to_json(),
            r#"{"files":4,"tasks":3,"succeeded":3,"failed":0,"retried":1,"mismatches":0,"steps":0,"firings":0,"elapsed_ms":1234}"#
        );
    }

    #[test]
    fn a_mismatch_or_a_failure_ends_the_command_with_an_error() {
        let mut summary = DemoSummary::new(1, 1, &Verification::default(), Duration::ZERO);
        assert_eq!(summary.exit(), Exit::Ok);
        summary.mismatches = 1;
        assert_eq!(summary.exit(), Exit::VerifyFailed);
        (summary.mismatches, summary.failed) = (0, 1);
        assert_eq!(summary.exit(), Exit::VerifyFailed);
    }
}
