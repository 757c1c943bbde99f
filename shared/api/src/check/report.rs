//! Reports of workers.

use std::time::Duration;

use dueline_domain::{ClaimLifetime, IdError, Outcome, Policy, WorkerId};

use super::payload_len;
use crate::{Action, ApiError, ErrorReason};

/// Reads the name of an owner.
pub fn owner(text: &str) -> Result<WorkerId, ApiError> {
    WorkerId::parse(text).map_err(|error| {
        let reason = match error {
            IdError::Empty { .. } => ErrorReason::NoOwner,
            _ => ErrorReason::InvalidName,
        };
        ApiError::invalid("owner", reason, error)
    })
}

/// Checks how long a claim is to last.
pub(crate) fn lifetime(lifetime: ClaimLifetime) -> Result<(), ApiError> {
    match lifetime {
        ClaimLifetime::For(lifetime) if lifetime.is_zero() || lifetime > Policy::TIMEOUT_MAX => {
            let message = "must be more than zero and at most 366 days, or 'never'";
            Err(ApiError::invalid(
                "lifetime_ms",
                ErrorReason::InvalidDuration,
                message,
            ))
        }
        _ => Ok(()),
    }
}

/// Checks what an owner says about its task.
pub(crate) fn action(action: &Action) -> Result<(), ApiError> {
    match action {
        Action::Extend { by } => extension(*by).map(drop),
        Action::Trash { reason } => trash_reason(reason).map(drop),
        Action::Checkpoint { payload } => payload_len("payload", payload.len()),
        Action::Finish {
            outcome: Outcome::Success {
                result: Some(result),
            },
            ..
        } => payload_len("result", result.len()),
        Action::Start | Action::Heartbeat | Action::Finish { .. } | Action::Abandon => Ok(()),
    }
}

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
