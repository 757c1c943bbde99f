//! What runs the tasks of a job, with the settings of built-in handlers checked before they are stored.

use std::{collections::BTreeMap, sync::Arc};

use dueline_domain::{Handler, limits};
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

/// Settings of the handler `exec`: it runs a command on the executor's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// Program and arguments; no shell takes part.
    pub command: Vec<String>,
    /// Environment variables to set.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Directory to run in; the executor's own when absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Exit codes that are worth another try though they are not by default.
    #[serde(default)]
    pub retriable_exit_codes: Vec<u8>,
    /// Exit codes that are not worth another try, besides the default ones.
    #[serde(default)]
    pub fatal_exit_codes: Vec<u8>,
    /// Most bytes of output kept as the result.
    #[serde(default = "result_bytes_default")]
    #[schema(default = result_bytes_default, maximum = 262144)]
    pub result_max_bytes: usize,
    /// How the command gets the task's input.
    #[serde(default)]
    pub input: ExecInput,
}

/// How a command gets the task's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecInput {
    /// On its standard input.
    #[default]
    Stdin,
    /// Not at all.
    None,
}

/// Settings of the handler `http`: it calls a URL with the payload as the body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// An `http` or `https` URL.
    pub url: String,
    /// Method.
    #[serde(default = "method_default")]
    #[schema(default = method_default)]
    pub method: String,
    /// Headers to send.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Longest time to connect.
    #[serde(default = "connect_timeout_default_ms")]
    #[schema(default = connect_timeout_default_ms, minimum = 1)]
    pub connect_timeout_ms: u32,
    /// Longest time for the whole call.
    #[serde(default = "timeout_default_ms")]
    #[schema(default = timeout_default_ms, minimum = 1)]
    pub timeout_ms: u32,
    /// Most bytes of the answer kept as the result.
    #[serde(default = "result_bytes_default")]
    #[schema(default = result_bytes_default, maximum = 262144)]
    pub result_max_bytes: usize,
    /// Statuses that mean success, besides 200 to 299.
    #[serde(default)]
    pub success_statuses: Vec<u16>,
    /// Statuses that mean that trying again is of no use, besides the default ones.
    #[serde(default)]
    pub fatal_statuses: Vec<u16>,
}

const fn result_bytes_default() -> usize {
    64 * 1024
}

fn method_default() -> String {
    "POST".to_owned()
}

const fn connect_timeout_default_ms() -> u32 {
    5_000
}

const fn timeout_default_ms() -> u32 {
    30_000
}

/// Headers that belong to the connection, or that tell about the task.
const CLOSED_HEADERS: [&str; 14] = [
    "host",
    "content-length",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    "expect",
    "idempotency-key",
];

impl ExecConfig {
    fn check(&self) -> Result<(), ApiError> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err(wrong("command", "must name a program"));
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
        let fatal = &self.fatal_exit_codes;
        if fatal.contains(&0) || self.retriable_exit_codes.contains(&0) {
            return Err(wrong("fatal_exit_codes", "exit code 0 is success"));
        }
        if self
            .retriable_exit_codes
            .iter()
            .any(|code| fatal.contains(code))
        {
            let message = "holds a code that is retriable too";
            return Err(wrong("fatal_exit_codes", message));
        }
        check_result_max(self.result_max_bytes)
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
        let method = http::Method::from_bytes(self.method.as_bytes());
        if !method.is_ok_and(|method| method != http::Method::CONNECT) {
            return Err(wrong("method", "is no method that can be used"));
        }
        for (name, value) in &self.headers {
            let header = http::HeaderName::from_bytes(name.as_bytes());
            let open = header.is_ok_and(|header| {
                let header = header.as_str();
                !CLOSED_HEADERS.contains(&header) && !header.starts_with("dueline-")
            });
            if !open || http::HeaderValue::from_str(value).is_err() {
                return Err(wrong("headers", format!("'{name}' cannot be set")));
            }
        }
        for (field, timeout) in [
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("timeout_ms", self.timeout_ms),
        ] {
            if timeout == 0 {
                return Err(wrong(field, "must be longer than zero"));
            }
        }
        for (field, statuses) in [
            ("success_statuses", &self.success_statuses),
            ("fatal_statuses", &self.fatal_statuses),
        ] {
            if statuses.iter().any(|status| !(200..600).contains(status)) {
                return Err(wrong(field, "final statuses lie between 200 and 599"));
            }
        }
        let success = &self.success_statuses;
        if self
            .fatal_statuses
            .iter()
            .any(|status| success.contains(status))
        {
            let message = "holds a status that means success too";
            return Err(wrong("fatal_statuses", message));
        }
        check_result_max(self.result_max_bytes)
    }
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
                r#"{"kind": "http", "config": {"url": "http://x/", "method": "CONNECT"}}"#,
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
            (
                r#"{"kind": "http", "config": {"url": "http://x/", "headers": {"Host": "y"}}}"#,
                "invalid_handler",
                "handler.config.headers",
            ),
            (
                r#"{"kind": "exec", "config": {"command": ["a"], "fatal_exit_codes": [0]}}"#,
                "invalid_handler",
                "handler.config.fatal_exit_codes",
            ),
            (
                r#"{"kind": "exec", "config": {"command": ["a"], "result_max_bytes": 262145}}"#,
                "invalid_handler",
                "handler.config.result_max_bytes",
            ),
        ] {
            assert_eq!(check(bad), Err((reason.into(), field.into())), "{bad}");
        }
    }
}
