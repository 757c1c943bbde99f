//! What failed calls mean to callers of the store.

use std::sync::Arc;

use dueline_aws::{Class, Failure};
use dueline_ports::StoreError;

/// The error of a read: it certainly changed nothing.
pub(crate) fn of_read(failure: Failure) -> StoreError {
    of(failure, false)
}

/// The error of a write: without an answer nobody knows whether it happened.
pub(crate) fn of_write(failure: Failure) -> StoreError {
    of(failure, true)
}

fn of(failure: Failure, writes: bool) -> StoreError {
    let Failure { class, message } = failure;
    match class {
        Class::Throttled => StoreError::Throttled,
        Class::Invalid => StoreError::Invalid(message),
        // The SDK tries again by itself: that the last try did not get there says nothing of those before.
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
