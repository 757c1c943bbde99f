//! Settings of the handler `http`.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{check_result_max, result_bytes_default, within, wrong};
use crate::ApiError;

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
    /// What the body of the call is.
    #[serde(default)]
    pub body: HttpBody,
}

/// What the body of a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HttpBody {
    /// The task's input.
    #[default]
    Input,
    /// A JSON object with the task's input and what its predecessors have returned, see `InputView`.
    Results,
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

/// Headers that belong to the connection, or that describe the task and are set by Dueline.
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

impl HttpConfig {
    /// Reads the settings of a job and checks them; errors name the field as seen from the job.
    pub fn parse(config: &str) -> Result<Self, ApiError> {
        let config: Self = within(config)?;
        config.check()?;
        Ok(config)
    }

    /// The method to call with.
    pub fn http_method(&self) -> Result<Method, ApiError> {
        Method::from_bytes(self.method.as_bytes())
            .ok()
            .filter(|method| *method != Method::CONNECT)
            .ok_or_else(|| {
                let message = format!("'{:.64}' is no usable method", self.method);
                wrong("method", message)
            })
    }

    /// The headers to send.
    pub fn header_map(&self) -> Result<HeaderMap, ApiError> {
        let wrong = |message| wrong("headers", message);
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong(format!("'{name:.64}' is no header name")))?;
            let text = header.as_str();
            if CLOSED_HEADERS.contains(&text) || text.starts_with("dueline-") {
                return Err(wrong(format!("'{name:.64}' cannot be set")));
            }
            // This refuses line breaks, so a value cannot smuggle in another header.
            let value = HeaderValue::from_str(value)
                .map_err(|_| wrong(format!("the value of '{name:.64}' is not plain text")))?;
            headers.insert(header, value);
        }
        Ok(headers)
    }

    fn check(&self) -> Result<(), ApiError> {
        self.check_url()?;
        self.http_method()?;
        self.header_map()?;
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
            if let Some(status) = statuses.iter().find(|it| !(200..600).contains(*it)) {
                let message = format!("{status} is no final status; they lie between 200 and 599");
                return Err(wrong(field, message));
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

    /// Whether a call to the URL is allowed from where it is made, only the executor can say.
    fn check_url(&self) -> Result<(), ApiError> {
        let uri: Uri = self.url.parse().map_err(|error| wrong("url", error))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let host = uri.host().unwrap_or_default();
        if !matches!(uri.scheme_str(), Some("http" | "https")) || host.is_empty() {
            return Err(wrong("url", "must be an absolute http or https URL"));
        }
        if authority.contains('@') {
            return Err(wrong("url", "may hold no user name or password"));
        }
        // Of a port that is no port there is only the text.
        let after_host = &authority[host.len()..];
        if !matches!(after_host, "" | ":") && uri.port_u16().is_none() {
            return Err(wrong("url", format!("'{after_host:.64}' is no port")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_call_that_cannot_work_are_refused_by_field() {
        let refused = |bad: &str, field: &str, why: &str| {
            let error = HttpConfig::parse(bad).unwrap_err();
            let field = format!("handler.config.{field}");
            assert_eq!(error.field(), Some(&*field), "{bad}");
            assert!(error.message().contains(why), "{bad}: {error}");
        };
        refused("{}", "url", "missing field");
        for url in [
            "nowhere",
            "/a",
            "ftp://a/",
            "http://",
            "http://:80/",
            "http:///a",
            "http://a b/",
            "http://a\\\\@b/",
            "http://u@a/",
            "http://u:p@a/",
            "http://@a/",
            "http://a:99999/",
            "http://[::1]:b/",
        ] {
            refused(&format!(r#"{{"url": "{url}"}}"#), "url", "");
        }
        for (more, field, why) in [
            (r#""methods": "PUT""#, "methods", "unknown field"),
            (r#""method": "P T""#, "method", "'P T'"),
            (r#""method": "CONNECT""#, "method", "'CONNECT'"),
            (r#""headers": {"Host": "b"}"#, "headers", "'Host'"),
            (r#""headers": {"TE": "b"}"#, "headers", "'TE'"),
            (
                r#""headers": {"Dueline-Job": "b"}"#,
                "headers",
                "'Dueline-Job'",
            ),
            (
                r#""headers": {"a": "b\r\nc: d"}"#,
                "headers",
                "not plain text",
            ),
            (r#""headers": {"a b": "c"}"#, "headers", "no header name"),
            (r#""timeout_ms": 0"#, "timeout_ms", "longer than zero"),
            (
                r#""connect_timeout_ms": 0"#,
                "connect_timeout_ms",
                "longer than zero",
            ),
            (r#""fatal_statuses": [99]"#, "fatal_statuses", "99"),
            (r#""success_statuses": [600]"#, "success_statuses", "600"),
            (
                r#""success_statuses": [404], "fatal_statuses": [404]"#,
                "fatal_statuses",
                "success too",
            ),
            (
                r#""result_max_bytes": 262145"#,
                "result_max_bytes",
                "262144",
            ),
        ] {
            refused(&format!(r#"{{"url": "http://a/", {more}}}"#), field, why);
        }
    }

    #[test]
    fn a_port_may_be_named_or_left_out() {
        for url in [
            "http://a",
            "http://a:/",
            "http://a:80/",
            "https://[::1]",
            "HTTPS://[::1]:8443/",
        ] {
            let parsed = HttpConfig::parse(&format!(r#"{{"url": "{url}"}}"#));
            assert!(parsed.is_ok(), "{url}: {parsed:?}");
        }
    }

    #[test]
    fn what_is_left_out_of_the_settings_of_a_call_has_its_default() {
        let config = HttpConfig::parse(r#"{"url": "http://a/", "headers": {"X-A": "b"}}"#).unwrap();
        assert_eq!(config.http_method().unwrap(), Method::POST);
        assert_eq!(config.header_map().unwrap()["x-a"], "b");
        let timeouts = (config.connect_timeout_ms, config.timeout_ms);
        assert_eq!(timeouts, (5_000, 30_000));
        assert_eq!(config.result_max_bytes, 65_536);
    }
}
