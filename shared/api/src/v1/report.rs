//! What workers say about their tasks.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use dueline_domain::{Outcome, RetryClass, StateKind, Token, WriteId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    Time, as_text,
    backoff::millis,
    payload::{Forms, raw},
};
use crate::{Action, ApiError, ErrorReason, ReportAck, check, operation::ReportedTask};

/// The proof of ownership alone: for `start`, `heartbeat` and `abandon`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Owned {
    /// The token of the assignment.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "00c0ffee00c0ffee")]
    pub token: Token,
    /// Names this report: 16 hexadecimal digits, chosen at random. Repeat it with the same report after a lost answer.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub write_id: Option<WriteId>,
    /// Who the caller takes for the owner: the refusals are then those of a board, which name the real one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// The lease shall end this long from now.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// The token of the assignment.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub token: Token,
    /// Names this report, see `Owned`.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub write_id: Option<WriteId>,
    /// Who the caller takes for the owner: the refusals are then those of a board, which name the real one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// From now on; more than zero.
    #[schema(minimum = 1)]
    pub by_ms: i64,
}

/// What a later run shall get instead of the payload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The token of the assignment.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub token: Token,
    /// Names this report, see `Owned`.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub write_id: Option<WriteId>,
    /// Who the caller takes for the owner: the refusals are then those of a board, which name the real one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The new input, as JSON.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Value)]
    pub payload: Option<Box<RawValue>>,
    /// The new input, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The new input, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_text: Option<String>,
}

/// The run succeeded.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Complete {
    /// The token of the assignment.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub token: Token,
    /// Names this report, see `Owned`.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub write_id: Option<WriteId>,
    /// Who the caller takes for the owner: the refusals are then those of a board, which name the real one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What the run returned, as JSON.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Value)]
    pub result: Option<Box<RawValue>>,
    /// What the run returned, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
    /// What the run returned, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_text: Option<String>,
    /// When the run began, if no start was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
}

/// The run did not succeed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// The token of the assignment.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub token: Token,
    /// Names this report, see `Owned`.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub write_id: Option<WriteId>,
    /// Who the caller takes for the owner: the refusals are then those of a board, which name the real one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Which of the job's waits applies: `standard`, `quick`, `slow`, `rate_limited` or `worker_lost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "slow")]
    pub class: Option<String>,
    /// A wait instead of the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Whether trying again is of no use.
    #[serde(default)]
    pub fatal: bool,
    /// Whether the worker stopped because a user had asked for it.
    #[serde(default)]
    pub cancelled: bool,
    /// When the run began, if no start was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
}

/// The owner trashes the task: it never runs again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Trash {
    /// The token of the assignment.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub token: Token,
    /// Names this report, see `Owned`.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub write_id: Option<WriteId>,
    /// Who the caller takes for the owner: the refusals are then those of a board, which name the real one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Why.
    pub reason: String,
}

impl Extend {
    /// What it says.
    pub fn action(self) -> Result<Action, ApiError> {
        let by = u64::try_from(self.by_ms).map_or(Duration::ZERO, Duration::from_millis);
        let by = check::extension(by)?;
        Ok(Action::Extend { by })
    }
}

impl Checkpoint {
    /// What it says.
    pub fn action(self) -> Result<Action, ApiError> {
        let forms = Forms {
            field: "payload",
            json: self.payload,
            base64: self.payload_base64,
            text: self.payload_text,
        };
        let given = forms.take()?.ok_or_else(|| {
            ApiError::invalid("payload", ErrorReason::MissingField, "nothing to store")
        })?;
        Ok(Action::Checkpoint {
            payload: given.bytes,
        })
    }
}

impl Complete {
    /// What it says.
    pub fn action(self) -> Result<Action, ApiError> {
        let forms = Forms {
            field: "result",
            json: self.result,
            base64: self.result_base64,
            text: self.result_text,
        };
        let result = forms.take()?.map(|given| given.bytes);
        Ok(Action::Finish {
            started_at: self.started_at.map(Into::into),
            outcome: Outcome::Success { result },
        })
    }
}

impl Fail {
    /// What it says.
    pub fn action(self) -> Result<Action, ApiError> {
        let class = self
            .class
            .as_deref()
            .map(RetryClass::from_str)
            .transpose()
            .map_err(|error| ApiError::invalid("class", ErrorReason::UnknownClass, error))?;
        let final_end = self.fatal || self.cancelled;
        if (self.fatal && self.cancelled)
            || (final_end && (class.is_some() || self.delay_ms.is_some()))
        {
            let message = "give only one of fatal, cancelled, and class or delay_ms";
            return Err(ApiError::invalid("fatal", ErrorReason::Ambiguous, message));
        }
        let error: Option<Arc<str>> = self.error.map(Arc::from);
        let outcome = if self.cancelled {
            Outcome::Cancelled
        } else {
            let error = error.ok_or_else(|| {
                ApiError::invalid("error", ErrorReason::MissingField, "say what went wrong")
            })?;
            if self.fatal {
                Outcome::Fatal { error }
            } else {
                Outcome::Retriable {
                    class: class.unwrap_or_default(),
                    delay: self.delay_ms.map(Duration::from_millis),
                    error,
                }
            }
        };
        Ok(Action::Finish {
            started_at: self.started_at.map(Into::into),
            outcome,
        })
    }
}

impl Trash {
    /// What it says.
    pub fn action(self) -> Result<Action, ApiError> {
        Ok(Action::Trash {
            reason: Arc::from(check::trash_reason(&self.reason)?),
        })
    }
}

/// Answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedView {
    /// The task's state now.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "processing")]
    pub state: StateKind,
    /// Whether a user asked to stop the run.
    pub cancel_requested: bool,
    /// How long ownership lasts from now; null when there is none.
    pub lease_ms: Option<u64>,
    /// Whether the report took effect. Only false for an extension by a named owner of a task without an owner.
    #[serde(default = "done")]
    pub done: bool,
}

const fn done() -> bool {
    true
}

impl From<ReportedTask> for ReportedView {
    fn from(reported: ReportedTask) -> Self {
        Self {
            done: reported.done,
            ..reported.ack.into()
        }
    }
}

impl From<ReportAck> for ReportedView {
    fn from(reported: ReportAck) -> Self {
        Self {
            state: reported.state,
            cancel_requested: reported.cancel_requested,
            lease_ms: reported.lease.map(millis),
            done: true,
        }
    }
}

impl From<ReportedView> for ReportAck {
    fn from(view: ReportedView) -> Self {
        Self {
            state: view.state,
            cancel_requested: view.cancel_requested,
            lease: view.lease_ms.map(Duration::from_millis),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::parse;

    fn fail(fields: &str) -> Result<Outcome, (String, String)> {
        let text = format!(r#"{{"token": "00000000000000aa", {fields}}}"#);
        let action = parse::<Fail>(text.as_bytes()).and_then(Fail::action);
        match action {
            Ok(Action::Finish { outcome, .. }) => Ok(outcome),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                let field = error.field().unwrap_or_default().to_owned();
                Err((error.reason().to_string(), field))
            }
        }
    }

    #[test]
    fn f_057_a_failure_names_its_class_or_its_own_delay() {
        let outcome = fail(r#""error": "e", "class": "slow""#).unwrap();
        let Outcome::Retriable { class, delay, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((class, delay), (RetryClass::Slow, None));
        let outcome = fail(r#""error": "e", "delay_ms": 50"#).unwrap();
        assert!(
            matches!(outcome, Outcome::Retriable { delay: Some(d), .. } if d.as_millis() == 50)
        );
        let outcome = fail(r#""error": "e", "fatal": true"#).unwrap();
        assert!(matches!(outcome, Outcome::Fatal { .. }));
        assert_eq!(fail(r#""cancelled": true"#), Ok(Outcome::Cancelled));
    }

    #[test]
    fn f_057_an_unknown_class_is_refused() {
        for (fields, reason, field) in [
            (r#""error": "e", "class": "fast""#, "unknown_class", "class"),
            (r#""fatal": false"#, "missing_field", "error"),
            (
                r#""error": "e", "fatal": true, "class": "slow""#,
                "ambiguous",
                "fatal",
            ),
            (
                r#""error": "e", "write_id": "1""#,
                "invalid_value",
                "write_id",
            ),
        ] {
            assert_eq!(fail(fields), Err((reason.into(), field.into())), "{fields}");
        }
    }

    #[test]
    fn f_053_a_lease_is_not_extended_by_nothing() {
        for by_ms in [0, -1, i64::MAX] {
            let text = format!(r#"{{"token": "00000000000000aa", "by_ms": {by_ms}}}"#);
            let extend: Extend = parse(text.as_bytes()).unwrap();
            assert_eq!(extend.action().unwrap_err().field(), Some("by_ms"));
        }
    }
}
