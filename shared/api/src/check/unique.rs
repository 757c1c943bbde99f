//! What makes a task with a key unique.

use std::time::Duration;

use dueline_domain::{OnConflict, TaskOptions, Unique};

use crate::{ApiError, ErrorReason};

/// Longest period and delay.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Checks what makes a task unique, and removes what only a store may say.
pub(super) fn unique(options: &mut TaskOptions) -> Result<(), ApiError> {
    let Some(unique) = &mut options.unique else {
        return Ok(());
    };
    if options.key.is_none() {
        let message = "is missing: a task is unique by its key";
        return Err(ApiError::invalid("key", ErrorReason::MissingField, message));
    }
    if options.family.is_some() {
        let message = "cannot be together with `after`, `parent` or `from_run`";
        return Err(ApiError::invalid(
            "unique",
            ErrorReason::NotApplicable,
            message,
        ));
    }
    let Unique {
        until: _,
        period,
        on_conflict,
        max_delay,
        replaced,
    } = &mut **unique;
    *replaced = 0;
    duration("unique.period_ms", *period)?;
    duration("unique.max_delay_ms", *max_delay)?;
    if max_delay.is_some() && *on_conflict != OnConflict::Replace {
        let message = "has a meaning only with `on_conflict`: `replace`";
        return Err(ApiError::invalid(
            "unique.max_delay_ms",
            ErrorReason::NotApplicable,
            message,
        ));
    }
    Ok(())
}

fn duration(field: &'static str, value: Option<Duration>) -> Result<(), ApiError> {
    let allowed = Duration::from_millis(1)..=LONGEST;
    if value.is_some_and(|value| !allowed.contains(&value)) {
        let message = format!("must be from 1 to {}", LONGEST.as_millis());
        return Err(ApiError::invalid(field, ErrorReason::OutOfRange, message));
    }
    Ok(())
}
