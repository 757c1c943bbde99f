//! Single values of messages: parsed and bounded, with errors that name the field.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_domain::{
    JobName, Priority, ScheduleName, Timestamp, Token, Weight, WorkerId, WriteId, limits,
    truncate_text,
};

pub(crate) use crate::check::field::*;
use crate::{ApiError, ErrorReason, check};

pub(crate) fn required<T>(field: &'static str, value: Option<T>) -> Result<T, ApiError> {
    value.ok_or_else(|| ApiError::invalid(field, ErrorReason::MissingField, "is missing"))
}

pub(crate) fn job_name(field: &'static str, text: &str) -> Result<JobName, ApiError> {
    JobName::parse(text).map_err(|error| ApiError::invalid(field, ErrorReason::InvalidName, error))
}

pub(crate) fn schedule_name(field: &'static str, text: &str) -> Result<ScheduleName, ApiError> {
    ScheduleName::parse(text)
        .map_err(|error| ApiError::invalid(field, ErrorReason::InvalidName, error))
}

pub(crate) fn job_names(field: &'static str, names: &[String]) -> Result<Vec<JobName>, ApiError> {
    batch(field, names.len())?;
    names.iter().map(|name| job_name(field, name)).collect()
}

pub(crate) fn worker_id(field: &'static str, text: &str) -> Result<WorkerId, ApiError> {
    WorkerId::parse(text).map_err(|error| ApiError::invalid(field, ErrorReason::InvalidName, error))
}

pub(crate) fn token(field: &'static str, number: u64) -> Result<Token, ApiError> {
    Token::from_stored(number.cast_signed())
        .ok_or_else(|| ApiError::invalid(field, ErrorReason::MissingField, "must not be 0"))
}

pub(crate) fn write_id(field: &'static str, number: u64) -> Result<WriteId, ApiError> {
    WriteId::from_stored(number.cast_signed())
        .ok_or_else(|| ApiError::invalid(field, ErrorReason::MissingField, "must not be 0"))
}

pub(crate) fn timestamp(field: &'static str, millis: i64) -> Result<Timestamp, ApiError> {
    Timestamp::from_millis(millis)
        .map_err(|error| ApiError::invalid(field, ErrorReason::InvalidValue, error))
}

pub(crate) fn timestamp_opt(
    field: &'static str,
    millis: Option<i64>,
) -> Result<Option<Timestamp>, ApiError> {
    millis.map(|millis| timestamp(field, millis)).transpose()
}

pub(crate) fn priority(field: &'static str, number: i32) -> Result<Priority, ApiError> {
    Priority::new(number.into())
        .map_err(|error| ApiError::invalid(field, ErrorReason::InvalidPriority, error))
}

pub(crate) fn weight(field: &'static str, number: u32) -> Result<Weight, ApiError> {
    Weight::new(number.into())
        .map_err(|error| ApiError::invalid(field, ErrorReason::InvalidWeight, error))
}

/// A payload, checkpoint or result.
pub(crate) fn payload(field: &'static str, bytes: Bytes) -> Result<Bytes, ApiError> {
    check::payload_len(field, bytes.len())?;
    Ok(bytes)
}

/// Checks the length of a batch.
pub(crate) fn batch(field: &'static str, len: usize) -> Result<(), ApiError> {
    let len_max = limits().batch_len_max;
    if len > len_max {
        let text = format!("has {len} entries; at most {len_max} are allowed");
        return Err(ApiError::invalid(field, ErrorReason::TooMany, text));
    }
    Ok(())
}

/// An error text of a worker: a long one is cut, because refusing it would lose the outcome.
pub(crate) fn error_text(text: &str) -> Arc<str> {
    Arc::from(truncate_text(text, limits().error_bytes_max))
}

pub(crate) fn text_opt(text: Option<String>) -> Option<Arc<str>> {
    text.map(Arc::from)
}

/// A trace context. One that is not well formed is ignored, as W3C Trace Context asks for.
pub(crate) fn trace(text: Option<String>) -> Option<Arc<str>> {
    let text = text.filter(|text| dueline_trace::is_well_formed(text))?;
    Some(Arc::from(text))
}

pub(crate) fn string_opt(text: Option<Arc<str>>) -> Option<String> {
    text.map(|text| text.as_ref().to_owned())
}

/// Whole milliseconds, rounded up so that a short time does not become none, which often means something else.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Checks a number of bytes.
pub(crate) fn size(field: &'static str, bytes: usize, bytes_max: usize) -> Result<(), ApiError> {
    if bytes > bytes_max {
        let text = format!("has {bytes} bytes; at most {bytes_max} are allowed");
        return Err(ApiError::invalid(field, ErrorReason::TooLong, text));
    }
    Ok(())
}

/// The wait of a call between the programs of one deployment, cut to the longest one.
pub(crate) fn wait_at_most(millis: u64) -> Duration {
    Duration::from_millis(millis).min(check::WAIT_MAX)
}

/// A number of things as the protocol has it.
pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_does_not_become_none_and_a_long_one_saturates() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_millis(7)), 7);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
