//! Failed calls as errors of the store.

use std::sync::Arc;

use dueline_aws::{Class, Failure};
use dueline_ports::StoreError;

/// The error of a read, which changes nothing.
pub(crate) fn of_read(failure: Failure) -> StoreError {
    of(failure, false)
}

/// The error of a write. Without an answer, the outcome is unknown.
pub(crate) fn of_write(failure: Failure) -> StoreError {
    of(failure, true)
}

fn of(failure: Failure, writes: bool) -> StoreError {
    let Failure { class, message } = failure;
    match class {
        Class::Throttled => StoreError::Throttled,
        Class::Invalid => StoreError::Invalid(message),
        // The SDK retries by itself, so an earlier try may have arrived even if the last one was not sent.
        Class::Unknown | Class::NotSent => unavailable(message, writes),
        Class::Denied
        | Class::Missing
        | Class::InUse
        | Class::ConditionFailed
        | Class::Cancelled => unavailable(message, false),
    }
}

fn unavailable(message: Arc<str>, outcome_unknown: bool) -> StoreError {
    StoreError::Unavailable {
        message,
        outcome_unknown,
    }
}
