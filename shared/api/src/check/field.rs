//! Single values that each transport parses in the same way, with errors that name the field.

use dueline_domain::{TaskId, limits};

use crate::{ApiError, ErrorReason};

pub(crate) fn task_id(field: &'static str, text: &str) -> Result<TaskId, ApiError> {
    TaskId::parse(text).map_err(|error| ApiError::invalid(field, ErrorReason::InvalidId, error))
}

/// Checks a short text, which must not be blank.
pub(crate) fn short_text(field: &'static str, text: Option<&str>) -> Result<(), ApiError> {
    let max = limits().text_bytes_max;
    match text {
        Some(text) if text.trim().is_empty() => Err(ApiError::invalid(
            field,
            ErrorReason::Blank,
            "must not be blank",
        )),
        Some(text) if text.len() > max => {
            let message = format!("has {} bytes; at most {max} are allowed", text.len());
            Err(ApiError::invalid(field, ErrorReason::TooLong, message))
        }
        _ => Ok(()),
    }
}
