//! What a failed call means to its caller.

use std::{error::Error, time::Duration};

use tonic::{Code, ConnectError, Status};

use crate::{ApiError, ErrorKind, ErrorReason, grpc::convert::error_in_status};

/// When to try again after the server could not be reached.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Whether a call whose answer was lost leaves a question open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It changes nothing, or asking again is always safe.
    Reads,
    /// It may have changed something.
    Writes,
}

/// The error of a call that ended without a good answer.
pub(super) fn call_failed(status: &Status, effect: Effect) -> ApiError {
    if let Some(error) = error_in_status(status) {
        return error;
    }
    if is_transport(status) {
        return if effect == Effect::Writes && !is_before_sending(status) {
            let text = format!("lost the connection to the server: {}", chain(status));
            new(ErrorKind::Deadline, ErrorReason::AnswerLost, text).with_retry_after(RETRY_AFTER)
        } else {
            let text = format!("server cannot be reached: {}", chain(status));
            new(ErrorKind::Unavailable, ErrorReason::Unreachable, text)
                .with_retry_after(RETRY_AFTER)
        };
    }
    foreign(status, effect)
}

/// No answer in time.
pub(super) fn no_answer(patience: Duration) -> ApiError {
    let text = format!(
        "no answer from the server within {} ms",
        patience.as_millis()
    );
    new(ErrorKind::Deadline, ErrorReason::NoAnswer, text)
}

/// A status without an error of ours in it: made by the framework or by something on the way.
fn foreign(status: &Status, effect: Effect) -> ApiError {
    let text = if status.message().is_empty() {
        status.code().description().to_owned()
    } else {
        status.message().to_owned()
    };
    match status.code() {
        Code::InvalidArgument => new(ErrorKind::Invalid, ErrorReason::Refused, text),
        Code::Unimplemented => {
            let text = format!("this server does not offer this call: {text}");
            new(ErrorKind::Invalid, ErrorReason::NotOffered, text)
        }
        Code::PermissionDenied | Code::Unauthenticated => {
            new(ErrorKind::Denied, ErrorReason::Denied, text)
        }
        Code::NotFound => new(ErrorKind::NotFound, ErrorReason::NotFound, text),
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => {
            new(ErrorKind::Conflict, ErrorReason::Conflict, text)
        }
        Code::OutOfRange => new(ErrorKind::TooLarge, ErrorReason::TooLarge, text),
        Code::ResourceExhausted => new(ErrorKind::RateLimited, ErrorReason::Overloaded, text),
        // Something on the way may have answered in the server's place, with the call on the server's side.
        Code::Unavailable if effect == Effect::Reads => {
            new(ErrorKind::Unavailable, ErrorReason::Unavailable, text)
                .with_retry_after(RETRY_AFTER)
        }
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            new(ErrorKind::Deadline, ErrorReason::AnswerLost, text).with_retry_after(RETRY_AFTER)
        }
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => {
            new(ErrorKind::Internal, ErrorReason::Internal, text)
        }
    }
}

/// Whether the call failed on its way and no server spoke: only then the status has a cause.
fn is_transport(status: &Status) -> bool {
    status.source().is_some()
}

/// Whether the call cannot have reached the server, because there was no connection to send it over.
fn is_before_sending(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<ConnectError>())
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let mut next = status.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

/// The texts of all causes; that of the status itself only repeats one of them.
fn chain(status: &Status) -> String {
    let mut texts: Vec<_> = causes(status).map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}

fn new(kind: ErrorKind, reason: ErrorReason, message: String) -> ApiError {
    ApiError::new(kind, reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Status {
        Status::from_error(cause.into())
    }

    #[test]
    fn a_call_that_never_left_is_unavailable_and_one_that_may_have_arrived_is_unknown() {
        let refused = ConnectError("connection refused".into());
        let error = call_failed(&broken(refused), Effect::Writes);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let error = call_failed(&broken("broken pipe"), Effect::Writes);
        assert_eq!(error.kind(), ErrorKind::Deadline);
        let error = call_failed(&broken("broken pipe"), Effect::Reads);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("broken pipe"), "{error}");
    }

    #[test]
    fn a_server_that_lacks_a_service_does_not_look_like_a_lost_task() {
        let error = call_failed(&Status::unimplemented(""), Effect::Writes);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!error.is_lost() && !error.is_retryable());
    }

    #[test]
    fn every_kind_of_error_survives_its_way_through_a_status() {
        for kind in ErrorKind::ALL {
            let error = ApiError::new(
                kind,
                ErrorReason::from_name("some_reason"),
                "größer als erlaubt",
            )
            .with_field("payload")
            .with_retry_after(Duration::from_millis(1_500));
            let status = Status::from(error.clone());
            assert_eq!(call_failed(&status, Effect::Writes), error);
        }
    }
}
