//! What to report of a run that is over.

use std::sync::Arc;

use dueline_domain::{Outcome, RetryClass, limits};

use crate::{Failure, HandlerResult, StopReason, Success};

/// How a handler came to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It returned.
    Returned(HandlerResult),
    /// It panicked with this text.
    Panicked(String),
    /// It was told to stop, did not, and was dropped.
    Killed,
}

/// What to report.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Finish(Outcome),
    /// Give it back: nobody's fault, so no try is used.
    Abandon,
    /// It is somebody else's.
    Nothing,
}

/// A handler that succeeded, or that says for sure that it never will, is believed even when it was told to stop.
/// Otherwise the reason of the stop says more than what the handler made of it.
pub(crate) fn verdict(ended: Ended, stop: Option<StopReason>) -> Verdict {
    let outcome = match (stop, ended) {
        (Some(StopReason::Lost), _) => return Verdict::Nothing,
        (_, Ended::Returned(Ok(success_))) => success(success_),
        (_, Ended::Returned(Err(Failure::Fatal { error }))) => fatal(&error),
        (Some(StopReason::Cancelled), _) => Outcome::Cancelled,
        (Some(StopReason::Shutdown), _) => return Verdict::Abandon,
        (Some(StopReason::Timeout), _) => {
            retriable(RetryClass::Standard, "ran past its run timeout")
        }
        (Some(StopReason::Expired), _) => {
            let error = "stopped because heartbeats were not answered in time";
            retriable(RetryClass::WorkerLost, error)
        }
        (None, Ended::Returned(Err(failure_))) => failure(failure_),
        (None, Ended::Panicked(text)) => {
            let error = format!("handler panicked: {text}");
            retriable(RetryClass::Standard, &error)
        }
        (None, Ended::Killed) => retriable(RetryClass::Standard, "the run was ended by force"),
    };
    Verdict::Finish(outcome)
}

pub(crate) fn success(success: Success) -> Outcome {
    let max = limits().payload_bytes_max;
    match success.result {
        // The store would refuse it each time, and the task would run for ever.
        Some(result) if result.len() > max => fatal(&format!(
            "the result has {} bytes; at most {max} are kept",
            result.len()
        )),
        result => Outcome::Success { result },
    }
}

pub(crate) fn failure(failure: Failure) -> Outcome {
    match failure {
        Failure::Retriable {
            class,
            delay,
            error,
        } => {
            let error = cut(&error);
            Outcome::Retriable {
                class,
                delay,
                error,
            }
        }
        Failure::Fatal { error } => fatal(&error),
        // Nobody has asked for it, so it is a failure like others.
        Failure::Cancelled => retriable(RetryClass::Standard, "the handler cancelled itself"),
    }
}

fn fatal(error: &str) -> Outcome {
    let error = cut(error);
    Outcome::Fatal { error }
}

pub(crate) fn retriable(class: RetryClass, error: &str) -> Outcome {
    Outcome::Retriable {
        class,
        delay: None,
        error: cut(error),
    }
}

/// Longer texts would only be cut on the other side.
fn cut(text: &str) -> Arc<str> {
    Arc::from(&text[..text.floor_char_boundary(limits().error_bytes_max)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn failed() -> Ended {
        Ended::Returned(Err("broken".into()))
    }

    fn error_of(verdict: &Verdict) -> &str {
        match verdict {
            Verdict::Finish(Outcome::Retriable { error, .. } | Outcome::Fatal { error }) => error,
            _ => panic!("no error in {verdict:?}"),
        }
    }

    #[test]
    fn f_037_the_return_value_or_the_panic_decides() {
        let ok = verdict(Ended::Returned(Ok(Bytes::from("r").into())), None);
        let result = Some(Bytes::from("r"));
        assert_eq!(ok, Verdict::Finish(Outcome::Success { result }));
        assert_eq!(error_of(&verdict(failed(), None)), "broken");
        let panicked = verdict(Ended::Panicked("why".into()), None);
        assert_eq!(error_of(&panicked), "handler panicked: why");
    }

    #[test]
    fn a_stop_goes_before_a_failure_but_not_before_a_success() {
        let done = || Ended::Returned(Ok(().into()));
        let succeeded = Verdict::Finish(Outcome::Success { result: None });
        assert_eq!(verdict(done(), Some(StopReason::Cancelled)), succeeded);
        let cancelled = Verdict::Finish(Outcome::Cancelled);
        assert_eq!(verdict(failed(), Some(StopReason::Cancelled)), cancelled);
        let killed = verdict(Ended::Killed, Some(StopReason::Shutdown));
        assert_eq!(killed, Verdict::Abandon);
        assert_eq!(verdict(done(), Some(StopReason::Lost)), Verdict::Nothing);
        let late = verdict(Ended::Killed, Some(StopReason::Timeout));
        assert_eq!(error_of(&late), "ran past its run timeout");
    }

    #[test]
    fn a_result_that_no_store_would_take_fails_for_good() {
        let large = Bytes::from(vec![0; limits().payload_bytes_max + 1]);
        assert!(matches!(success(large.into()), Outcome::Fatal { .. }));
    }

    #[test]
    fn error_texts_are_cut_between_characters() {
        let long = failure("ä".repeat(5_000).as_str().into());
        let Outcome::Retriable { error, .. } = long else {
            panic!("{long:?}");
        };
        assert_eq!(error.len(), limits().error_bytes_max);
    }
}
