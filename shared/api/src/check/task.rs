//! Tasks to store, and changes of tasks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dueline_domain::{Modification, NewTask, Policy, TaskAddress, TaskOptions, limits};
use serde::de::IgnoredAny;

use super::{field::short_text, policy, presentable};
use crate::{ApiError, ErrorKind, ErrorReason};

/// Longest wait of one call.
pub const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Checks a task to store, and brings it into the form that is stored: no tag twice, no empty options.
pub fn new_task(task: &mut NewTask) -> Result<(), ApiError> {
    payload_len("payload", task.payload.len())?;
    let Some(options) = &mut task.options else {
        return Ok(());
    };
    // Destructured without `..`, so that a new field does not compile before it is checked or listed here.
    let TaskOptions {
        name,
        details: map,
        tags: words,
        key,
        // It is checked below.
        unique: _,
        // The transport takes it from the principal of the call.
        created_by: _,
        content_type,
        // The transport drops what is not well formed.
        trace: _,
        overrides,
        original_run_at,
        firing,
        family,
        fairness_key,
        // The store sets it.
        takes_turns: _,
    } = &mut **options;
    // Only a task that was rescheduled has one.
    *original_run_at = None;
    // Only a consumer sets it.
    *firing = None;
    short_text("name", name.as_deref())?;
    details(map.as_deref())?;
    tags(words)?;
    short_text("key", key.as_deref())?;
    short_text("fairness_key", fairness_key.as_deref())?;
    short_text("content_type", content_type.as_deref())?;
    if let Some(overrides) = overrides {
        policy(&Policy::default().with(overrides))?;
    }
    if let Some(asked) = family.take() {
        let (job, id) = (task.job.clone(), task.id);
        *family = super::family::family(&TaskAddress { job, id }, asked)?;
    }
    super::unique::unique(options)?;
    if **options == TaskOptions::default() {
        task.options = None;
    }
    Ok(())
}

/// Checks the number of tasks in one call.
pub(crate) fn batch_len(len: usize) -> Result<(), ApiError> {
    let max = limits().batch_len_max;
    if len <= max {
        return Ok(());
    }
    let message = format!("a batch has at most {max} tasks");
    Err(ApiError::new(
        ErrorKind::TooLarge,
        ErrorReason::BatchTooLarge,
        message,
    ))
}

/// Checks a change of a task.
pub fn modification(change: &Modification) -> Result<(), ApiError> {
    if *change == Modification::default() {
        let message = "the request names nothing to change";
        return Err(ApiError::new(
            ErrorKind::Invalid,
            ErrorReason::NoChange,
            message,
        ));
    }
    let payload = change.payload.as_ref();
    payload.map_or(Ok(()), |payload| payload_len("payload", payload.len()))
}

/// Checks the reason of a cancel.
pub fn cancel_reason(reason: Option<&str>) -> Result<(), ApiError> {
    let max = limits().error_bytes_max;
    match reason {
        Some(reason) if reason.len() > max => Err(too_long("reason", reason.len(), max)),
        _ => Ok(()),
    }
}

/// Checks how long a call waits. A longer wait is refused instead of cut, so that the caller knows about it.
pub fn wait(field: &'static str, wait: Option<Duration>) -> Result<(), ApiError> {
    if wait.is_some_and(|wait| wait > WAIT_MAX) {
        let message = format!("must be at most {} s", WAIT_MAX.as_secs());
        return Err(ApiError::invalid(field, ErrorReason::OutOfRange, message));
    }
    Ok(())
}

/// Checks the size of a payload, checkpoint or result.
pub(crate) fn payload_len(field: &'static str, len: usize) -> Result<(), ApiError> {
    let max = limits().payload_bytes_max;
    if len <= max {
        return Ok(());
    }
    let message = format!("{field}: {len} bytes are too large; at most {max} are allowed");
    let reason = match field {
        "checkpoint" => ErrorReason::CheckpointTooLarge,
        "result" => ErrorReason::ResultTooLarge,
        _ => ErrorReason::PayloadTooLarge,
    };
    Err(ApiError::new(ErrorKind::TooLarge, reason, message).with_field(field))
}

pub(super) fn too_long(field: &'static str, len: usize, max: usize) -> ApiError {
    let message = format!("has {len} bytes; at most {max} are allowed");
    ApiError::invalid(field, ErrorReason::TooLong, message)
}

fn details(json: Option<&str>) -> Result<(), ApiError> {
    let Some(json) = json else { return Ok(()) };
    let max = limits().details_bytes_max;
    if json.len() > max {
        return Err(too_long("details", json.len(), max));
    }
    if serde_json::from_str::<BTreeMap<String, IgnoredAny>>(json).is_err() {
        let message = "must be a JSON object";
        return Err(ApiError::invalid(
            "details",
            ErrorReason::InvalidType,
            message,
        ));
    }
    presentable("details", json)
}

/// Checks tags and removes repetitions.
fn tags(tags: &mut Vec<Arc<str>>) -> Result<(), ApiError> {
    let max = limits().tags_max;
    if tags.len() > max {
        let message = format!("has {} entries; at most {max} are allowed", tags.len());
        return Err(ApiError::invalid("tags", ErrorReason::TooMany, message));
    }
    for tag in &*tags {
        short_text("tags", Some(tag))?;
    }
    let mut seen: Vec<Arc<str>> = Vec::with_capacity(tags.len());
    tags.retain(|tag| {
        let is_new = !seen.contains(tag);
        seen.push(tag.clone());
        is_new
    });
    Ok(())
}
