//! Decides what to report of a run whose handler has ended.

use std::sync::Arc;

use dueline_domain::{Outcome, RetryClass, limits, truncate_text};

use crate::{Failure, HandlerResult, StopReason, Success};

/// How a handler ended.
#[derive(Debug)]
pub(crate) enum HandlerEnd {
    /// The handler returned.
    Returned(HandlerResult),
    /// The handler panicked with this text.
    Panicked(String),
    /// The handler did not stop after its stop signal and was dropped.
    Killed,
}

/// What to report.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The outcome.
    Finish(Outcome),
    /// The task is abandoned: the handler did not fail, so no try is used.
    Abandon,
    /// Nothing: another worker owns the task.
    Nothing,
}

/// A success and a fatal failure count even after a stop signal. Otherwise the stop reason counts, because the error of
/// a stopped handler is only a consequence of it.
pub(crate) fn verdict(ended: HandlerEnd, stop: Option<StopReason>) -> Verdict {
    let outcome = match (stop, ended) {
        (Some(StopReason::Lost), _) => return Verdict::Nothing,
        (_, HandlerEnd::Returned(Ok(success_))) => success(success_),
        (_, HandlerEnd::Returned(Err(Failure::Fatal { error }))) => fatal(&error),
        (Some(StopReason::Cancelled), _) => Outcome::Cancelled,
        (Some(StopReason::Shutdown), _) => return Verdict::Abandon,
        (Some(StopReason::Timeout), _) => {
            retriable(RetryClass::Standard, "ran past its run timeout")
        }
        (Some(StopReason::Expired), _) => {
            let error = "stopped because heartbeats were not answered in time";
            retriable(RetryClass::WorkerLost, error)
        }
        (None, HandlerEnd::Returned(Err(Failure::Host { .. }))) => return Verdict::Abandon,
        (None, HandlerEnd::Returned(Err(failure_))) => failure(failure_),
        (None, HandlerEnd::Panicked(text)) => {
            let error = format!("handler panicked: {text}");
            retriable(RetryClass::Standard, &error)
        }
        (None, HandlerEnd::Killed) => {
            let error = "the handler was dropped because it did not stop in time";
            retriable(RetryClass::Standard, error)
        }
    };
    Verdict::Finish(outcome)
}

pub(crate) fn success(success: Success) -> Outcome {
    let max = limits().payload_bytes_max;
    match success.result {
        // The store would refuse the result after each run, so another try is of no use.
        Some(result) if result.len() > max => fatal(&format!(
            "the result has {} bytes; the limit is {max}",
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
        // A run that finishes its task explicitly has begun, so there is an outcome.
        Failure::Host { error } => retriable(RetryClass::Quick, &error),
        // No cancellation was requested, so this is an ordinary failure.
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

/// Cuts an error text to the length that the status controller would cut it to.
fn cut(text: &str) -> Arc<str> {
    Arc::from(truncate_text(text, limits().error_bytes_max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn failed() -> HandlerEnd {
        HandlerEnd::Returned(Err("broken".into()))
    }

    fn error_of(verdict: &Verdict) -> &str {
        match verdict {
            Verdict::Finish(Outcome::Retriable { error, .. } | Outcome::Fatal { error }) => error,
            _ => panic!("no error in {verdict:?}"),
        }
    }

    #[test]
    fn f_037_the_return_value_or_the_panic_decides() {
        let ok = verdict(HandlerEnd::Returned(Ok(Bytes::from("r").into())), None);
        let result = Some(Bytes::from("r"));
        assert_eq!(ok, Verdict::Finish(Outcome::Success { result }));
        assert_eq!(error_of(&verdict(failed(), None)), "broken");
        let panicked = verdict(HandlerEnd::Panicked("why".into()), None);
        assert_eq!(error_of(&panicked), "handler panicked: why");
    }

    #[test]
    fn a_stop_reason_overrides_a_failure_but_not_a_success() {
        let done = || HandlerEnd::Returned(Ok(().into()));
        let succeeded = Verdict::Finish(Outcome::Success { result: None });
        assert_eq!(verdict(done(), Some(StopReason::Cancelled)), succeeded);
        let cancelled = Verdict::Finish(Outcome::Cancelled);
        assert_eq!(verdict(failed(), Some(StopReason::Cancelled)), cancelled);
        let killed = verdict(HandlerEnd::Killed, Some(StopReason::Shutdown));
        assert_eq!(killed, Verdict::Abandon);
        assert_eq!(verdict(done(), Some(StopReason::Lost)), Verdict::Nothing);
        let late = verdict(HandlerEnd::Killed, Some(StopReason::Timeout));
        assert_eq!(error_of(&late), "ran past its run timeout");
        let host = || {
            let error = "too many open files".to_owned();
            HandlerEnd::Returned(Err(Failure::Host { error }))
        };
        assert_eq!(verdict(host(), None), Verdict::Abandon);
        assert_eq!(verdict(host(), Some(StopReason::Cancelled)), cancelled);
    }

    #[test]
    fn a_result_that_is_too_large_for_the_store_is_a_fatal_failure() {
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
