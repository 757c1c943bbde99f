//! What runs the tasks of a job, with the settings of built-in handlers checked before they are stored.

use std::{collections::BTreeMap, sync::Arc};

use dueline_domain::Handler;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::json;
use crate::{ApiError, ErrorKind};

/// What runs the tasks of a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandlerSpec {
    /// `worker` (whoever asks for work of this job), or a built-in handler: `exec`, `http`, `noop`.
    #[schema(example = "worker")]
    pub kind: String,
    /// Settings of a built-in handler: see `ExecConfig` and `HttpConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub config: Option<Box<RawValue>>,
}

/// Settings of the handler `exec`: it runs a command on the executor's host, with the payload as its input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// Program and arguments; no shell takes part.
    pub command: Vec<String>,
    /// Environment variables to set.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Directory to run in.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Exit codes that mean: try again.
    #[serde(default)]
    pub retriable_exit_codes: Option<Vec<i32>>,
    /// Exit codes that mean: trying again is of no use.
    #[serde(default)]
    pub fatal_exit_codes: Option<Vec<i32>>,
    /// Most bytes of output kept as the result.
    #[serde(default)]
    pub result_max_bytes: Option<u64>,
}

/// Settings of the handler `http`: it calls a URL with the payload as the body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// An `http` or `https` URL.
    pub url: String,
    /// Method, `POST` when absent.
    #[serde(default)]
    pub method: Option<String>,
    /// Headers to send.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Longest time to connect.
    #[serde(default)]
    pub connect_timeout_ms: Option<u64>,
    /// Longest time for the whole call.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Most bytes of the answer kept as the result.
    #[serde(default)]
    pub result_max_bytes: Option<u64>,
    /// Statuses that mean success; 200 to 299 when absent.
    #[serde(default)]
    pub success_statuses: Option<Vec<u16>>,
    /// Statuses that mean: trying again is of no use.
    #[serde(default)]
    pub fatal_statuses: Option<Vec<u16>>,
}

impl ExecConfig {
    fn check(&self) -> Result<(), ApiError> {
        match self.command.first() {
            Some(program) if !program.is_empty() => {}
            _ => return Err(wrong("command", "must name a program")),
        }
        if self.command.iter().any(|text| text.contains('\0')) {
            return Err(wrong("command", "may hold no NUL character"));
        }
        let bad = |(name, value): (&String, &String)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        };
        if self.env.iter().any(bad) {
            return Err(wrong("env", "holds a name or value that cannot be set"));
        }
        Ok(())
    }
}

impl HttpConfig {
    fn check(&self) -> Result<(), ApiError> {
        let uri: http::Uri = self.url.parse().map_err(|error| wrong("url", error))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(wrong("url", "must be an absolute http or https URL"));
        }
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(wrong("url", "may hold no user name"));
        }
        let method = self.method.as_deref().unwrap_or("POST");
        if !["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"].contains(&method) {
            let allowed = "must be GET, POST, PUT, PATCH, DELETE or HEAD";
            return Err(wrong("method", allowed));
        }
        for (name, value) in &self.headers {
            let named = http::HeaderName::from_bytes(name.as_bytes()).is_ok();
            if !named || http::HeaderValue::from_str(value).is_err() {
                return Err(wrong("headers", format!("'{name}' cannot be sent")));
            }
        }
        for (field, timeout) in [
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("timeout_ms", self.timeout_ms),
        ] {
            if timeout == Some(0) {
                return Err(wrong(field, "must be longer than zero"));
            }
        }
        for (field, statuses) in [
            ("success_statuses", &self.success_statuses),
            ("fatal_statuses", &self.fatal_statuses),
        ] {
            let mut statuses = statuses.iter().flatten();
            if statuses.any(|status| !(100..600).contains(status)) {
                return Err(wrong(field, "statuses lie between 100 and 599"));
            }
        }
        Ok(())
    }
}

fn wrong(field: &str, message: impl std::fmt::Display) -> ApiError {
    ApiError::invalid(
        format!("handler.config.{field}"),
        "invalid_handler",
        message,
    )
}

impl TryFrom<HandlerSpec> for Handler {
    type Error = ApiError;

    fn try_from(spec: HandlerSpec) -> Result<Self, ApiError> {
        let config = spec.config.as_ref().map_or("{}", |config| config.get());
        match spec.kind.as_str() {
            "worker" | "noop" => {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Nothing {}
                let Nothing {} = within(config)?;
            }
            "exec" => within::<ExecConfig>(config)?.check()?,
            "http" => within::<HttpConfig>(config)?.check()?,
            other => {
                let known = "worker, exec, http and noop";
                let message = format!("unknown handler '{other:.64}'; known are {known}");
                return Err(ApiError::invalid(
                    "handler.kind",
                    "unknown_handler",
                    message,
                ));
            }
        }
        Ok(Self {
            config: Arc::from(config),
            kind: Arc::from(spec.kind),
        })
    }
}

/// Parses the settings; errors name the field as seen from the job.
fn within<T: serde::de::DeserializeOwned>(config: &str) -> Result<T, ApiError> {
    json::parse(config.as_bytes()).map_err(|error| {
        let field = match error.field() {
            None | Some("body") => "handler.config".to_owned(),
            Some(field) => format!("handler.config.{field}"),
        };
        let reason = error.reason().to_owned();
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
            ApiError::new(ErrorKind::Internal, "corrupt", message)
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

    fn check(text: &str) -> Result<Handler, (String, String)> {
        let spec: HandlerSpec = serde_json::from_str(text).unwrap();
        Handler::try_from(spec).map_err(|error| {
            let field = error.field().unwrap_or_default().to_owned();
            (error.reason().to_owned(), field)
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
                r#"{"kind": "exec", "config": {"command": ["a"], "env": {"A=": ""}}}"#,
                "invalid_handler",
                "handler.config.env",
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
            (
                r#"{"kind": "http", "config": {"url": "http://u:p@x/"}}"#,
                "invalid_handler",
                "handler.config.url",
            ),
            (
                r#"{"kind": "http", "config": {"url": "http://x/", "method": "BREW"}}"#,
                "invalid_handler",
                "handler.config.method",
            ),
            (
                r#"{"kind": "http", "config": {"url": "http://x/", "headers": {"a b": ""}}}"#,
                "invalid_handler",
                "handler.config.headers",
            ),
            (
                r#"{"kind": "http", "config": {"url": "http://x/", "fatal_statuses": [7]}}"#,
                "invalid_handler",
                "handler.config.fatal_statuses",
            ),
        ] {
            assert_eq!(check(bad), Err((reason.into(), field.into())), "{bad}");
        }
    }
}
