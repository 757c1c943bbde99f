//! Errors as RFC 9457 problem details.

use std::time::Duration;

use dueline_domain::{StateKind, WorkerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{as_text, backoff::millis};
use crate::{ApiError, ErrorKind, ErrorReason};

/// What went wrong: `kind` for programs that only branch, `reason` for those that know the case, `detail` for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Names the case as a URI.
    #[serde(rename = "type", default)]
    #[schema(example = "urn:dueline:problem:unknown_task")]
    pub type_uri: String,
    /// The kind in words.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened.
    #[serde(default)]
    pub detail: String,
    /// What the caller can do: `invalid`, `denied`, `not-found`, `conflict`, `too-large`, `rate-limited`,
    /// `unavailable`, `deadline`, `internal`.
    #[serde(default)]
    #[schema(example = "not-found")]
    pub kind: String,
    /// The case.
    #[serde(default)]
    #[schema(example = "unknown_task")]
    pub reason: String,
    /// Whether the same call may work later.
    #[serde(default)]
    pub retryable: bool,
    /// The field at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The state that stood against the call.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub state: Option<StateKind>,
    /// Who owns the task.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub owner: Option<WorkerId>,
    /// When to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Names this call in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Problem {
    /// The same problem under a more telling HTTP status than that of its kind.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

/// The kind in words.
const fn title(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "Invalid request",
        ErrorKind::Denied => "Not allowed",
        ErrorKind::NotFound => "Not found",
        ErrorKind::Conflict => "Conflict with the present state",
        ErrorKind::TooLarge => "Too large",
        ErrorKind::RateLimited => "Too many requests",
        ErrorKind::Unavailable => "Not available just now",
        ErrorKind::Deadline => "No answer in time",
        ErrorKind::Internal => "Internal error",
    }
}

impl From<&ApiError> for Problem {
    fn from(error: &ApiError) -> Self {
        let kind = error.kind();
        Self {
            type_uri: format!("urn:dueline:problem:{}", error.reason()),
            title: title(kind).to_owned(),
            status: kind.http_status(),
            detail: error.message().to_owned(),
            kind: kind.name().to_owned(),
            reason: error.reason().to_string(),
            retryable: error.is_retryable(),
            field: error.field().map(str::to_owned),
            state: error.state(),
            owner: error.owner().cloned(),
            retry_after_ms: error.retry_after().map(millis),
            request_id: None,
        }
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        let kind = ErrorKind::from_name(&problem.kind).unwrap_or(match problem.status {
            403 => ErrorKind::Denied,
            404 => ErrorKind::NotFound,
            409 => ErrorKind::Conflict,
            413 => ErrorKind::TooLarge,
            429 => ErrorKind::RateLimited,
            502 | 503 => ErrorKind::Unavailable,
            408 | 504 => ErrorKind::Deadline,
            400..500 => ErrorKind::Invalid,
            _ => ErrorKind::Internal,
        });
        let reason = if problem.reason.is_empty() {
            ErrorReason::from_name("unknown")
        } else {
            ErrorReason::from_name(&problem.reason)
        };
        let detail = if problem.detail.is_empty() {
            format!("the server answered with status {}", problem.status)
        } else {
            problem.detail
        };
        let mut error = Self::new(kind, reason, detail).with_owner(problem.owner);
        if let Some(field) = problem.field {
            error = error.with_field(field);
        }
        if let Some(state) = problem.state {
            error = error.with_state(state);
        }
        if let Some(ms) = problem.retry_after_ms {
            error = error.with_retry_after(Duration::from_millis(ms));
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_020_an_error_survives_the_way_out_and_back_in() {
        for kind in ErrorKind::ALL {
            let error = ApiError::new(kind, ErrorReason::from_name("some_case"), "what happened")
                .with_field("a.b[1]")
                .with_state(StateKind::Processing)
                .with_owner(Some(WorkerId::parse("w@1").unwrap()))
                .with_retry_after(Duration::from_millis(1500));
            let json = serde_json::to_vec(&Problem::from(&error)).unwrap();
            let back: Problem = serde_json::from_slice(&json).unwrap();
            assert_eq!(back.status, kind.http_status());
            assert_eq!(back.retryable, kind.is_retryable());
            assert_eq!(ApiError::from(back), error);
        }
    }

    #[test]
    fn f_020_a_bare_answer_of_a_proxy_is_an_error_with_a_kind_too() {
        let problem: Problem = serde_json::from_str(r#"{"status": 502}"#).unwrap();
        let error = ApiError::from(problem);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(!error.message().is_empty());
    }
}
