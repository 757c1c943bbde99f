//! Reports of workers.

use std::time::Duration;

use dueline_domain::Policy;

use crate::{ApiError, ErrorReason};

/// Checks by how much an owner extends its lease.
pub(crate) fn extension(by: Duration) -> Result<Duration, ApiError> {
    if by.is_zero() || by > Policy::TIMEOUT_MAX {
        let message = "must be more than zero and at most 366 days";
        return Err(ApiError::invalid(
            "by_ms",
            ErrorReason::InvalidDuration,
            message,
        ));
    }
    Ok(by)
}

/// Checks why an owner trashes its task.
pub(crate) fn trash_reason(reason: &str) -> Result<&str, ApiError> {
    if reason.trim().is_empty() {
        return Err(ApiError::invalid(
            "reason",
            ErrorReason::Blank,
            "must not be blank",
        ));
    }
    Ok(reason)
}
