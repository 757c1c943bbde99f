//! What runs the tasks of a job, with the settings of built-in handlers checked before they are stored, and again by
//! the executor, because a store or another process may contain anything.

mod exec_config;
mod http_config;

use std::sync::Arc;

use dueline_domain::{Handler, limits};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub use self::{
    exec_config::{ExecConfig, ExecInput},
    http_config::{HttpBody, HttpConfig},
};
use super::json;
use crate::{ApiError, ErrorKind, ErrorReason};

/// What runs the tasks of a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandlerSpec {
    /// `worker` (the workers that poll for this job), or a built-in handler: `exec`, `http`, `noop`.
    #[schema(example = "worker")]
    pub kind: String,
    /// Settings of a built-in handler: see `ExecConfig` and `HttpConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub config: Option<Box<RawValue>>,
}

/// Result size of a job that names none.
const fn result_bytes_default() -> usize {
    64 * 1024
}

fn check_result_max(bytes: usize) -> Result<(), ApiError> {
    let max = limits().payload_bytes_max;
    if bytes > max {
        return Err(wrong("result_max_bytes", format!("must be at most {max}")));
    }
    Ok(())
}

fn wrong(field: &str, message: impl std::fmt::Display) -> ApiError {
    ApiError::invalid(
        format!("handler.config.{field}"),
        ErrorReason::InvalidHandler,
        message,
    )
}

impl From<HandlerSpec> for Handler {
    /// The handler, not checked yet: [`crate::check::handler`].
    fn from(spec: HandlerSpec) -> Self {
        let config = spec.config.as_ref().map_or("{}", |config| config.get());
        Self {
            config: Arc::from(config),
            kind: Arc::from(spec.kind),
        }
    }
}

/// Parses the settings; errors name the field as seen from the job.
pub(crate) fn within<T: serde::de::DeserializeOwned>(config: &str) -> Result<T, ApiError> {
    json::parse(config.as_bytes()).map_err(|error| {
        let field = match error.field() {
            None | Some("body") => "handler.config".to_owned(),
            Some(field) => format!("handler.config.{field}"),
        };
        let reason = error.reason().clone();
        ApiError::new(
            ErrorKind::Invalid,
            reason,
            format!("handler.config.{error}"),
        )
        .with_field(field)
    })
}

impl TryFrom<&Handler> for HandlerSpec {
    type Error = ApiError;

    fn try_from(handler: &Handler) -> Result<Self, ApiError> {
        let config = RawValue::from_string(handler.config.to_string()).map_err(|error| {
            let message = format!("settings of the handler are no JSON: {error}");
            ApiError::new(ErrorKind::Internal, ErrorReason::Corrupt, message)
        })?;
        Ok(Self {
            kind: handler.kind.to_string(),
            config: Some(config),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    fn check(text: &str) -> Result<Handler, (String, String)> {
        let spec: HandlerSpec = serde_json::from_str(text).unwrap();
        let handler = Handler::from(spec);
        check::handler(&handler).map(|()| handler).map_err(|error| {
            let field = error.field().unwrap_or_default().to_owned();
            (error.reason().to_string(), field)
        })
    }

    #[test]
    fn settings_of_built_in_handlers_are_checked_before_they_are_stored() {
        for good in [
            r#"{"kind": "worker"}"#,
            r#"{"kind": "noop", "config": {}}"#,
            r#"{"kind": "exec", "config": {"command": ["true"], "env": {"A": "b=c"}}}"#,
            r#"{"kind": "http", "config": {"url": "https://example.org/x?y=1", "method": "PUT",
                "headers": {"X-Key": "v"}, "timeout_ms": 500, "success_statuses": [200]}}"#,
        ] {
            let handler = check(good).unwrap();
            let back = HandlerSpec::try_from(&handler).unwrap();
            assert_eq!(back.config.unwrap().get(), &*handler.config);
        }
        for (bad, reason, field) in [
            (r#"{"kind": "cron"}"#, "unknown_handler", "handler.kind"),
            (
                r#"{"kind": "exec"}"#,
                "missing_field",
                "handler.config.command",
            ),
            (
                r#"{"kind": "exec", "config": {"command": []}}"#,
                "invalid_handler",
                "handler.config.command",
            ),
            (
                r#"{"kind": "exec", "config": {"command": ["a"], "shell": 1}}"#,
                "unknown_field",
                "handler.config.shell",
            ),
            (
                r#"{"kind": "worker", "config": 7}"#,
                "invalid_type",
                "handler.config",
            ),
            (
                r#"{"kind": "http", "config": {"url": "ftp://x/"}}"#,
                "invalid_handler",
                "handler.config.url",
            ),
        ] {
            assert_eq!(check(bad), Err((reason.into(), field.into())), "{bad}");
        }
    }
}
