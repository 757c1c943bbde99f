//! Calls a URL.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::RetryClass;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::{Client, Url};
use serde::Deserialize;

use super::{
    SettingsError, check_result_max, from_json,
    http_guard::{GuardedResolver, NotAllowed, check_url},
    http_reply, result_bytes_default,
};
use crate::{Failure, Handler, HandlerResult, HttpSettings, RunningTask};

/// Settings of the `http` handler.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Where to call.
    pub url: String,
    /// How; the task's input is the body, except for GET and HEAD.
    #[serde(default = "method_default")]
    pub method: String,
    /// Headers to add.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How long connecting may take.
    #[serde(default = "connect_timeout_default_ms")]
    pub connect_timeout_ms: u32,
    /// How long all of it may take.
    #[serde(default = "timeout_default_ms")]
    pub timeout_ms: u32,
    /// Most of the answer's body that becomes the result.
    #[serde(default = "result_bytes_default")]
    pub result_max_bytes: usize,
    /// Status codes that mean success, besides 200 to 299.
    #[serde(default)]
    pub success_statuses: Vec<u16>,
    /// Status codes that mean that trying again is of no use, besides the default ones.
    #[serde(default)]
    pub fatal_statuses: Vec<u16>,
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

/// Headers that belong to the connection, or that tell about the task and must be ours.
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

/// Reads and checks the settings of an `http` job, for an executor that may not call private targets.
pub fn parse(config: &str) -> Result<HttpConfig, SettingsError> {
    parse_with(config, &HttpSettings::default())
}

/// As [`parse`], for an executor with these settings.
pub fn parse_with(config: &str, settings: &HttpSettings) -> Result<HttpConfig, SettingsError> {
    let config: HttpConfig = from_json("http", config)?;
    config.plan(settings)?;
    Ok(config)
}

/// Settings in the form that a call needs.
struct Plan {
    url: Url,
    method: Method,
    headers: HeaderMap,
}

impl HttpConfig {
    fn plan(&self, settings: &HttpSettings) -> Result<Plan, SettingsError> {
        let wrong = |message: String| SettingsError::new("http", message);
        let url = Url::parse(&self.url).map_err(|error| wrong(format!("url: {error}")))?;
        check_url(&url, settings.allow_private).map_err(|error| wrong(error.to_string()))?;
        let method = Method::from_bytes(self.method.as_bytes())
            .ok()
            .filter(|method| *method != Method::CONNECT)
            .ok_or_else(|| wrong(format!("'{}' is no usable method", self.method)))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong(format!("'{name}' is no header name")))?;
            let text = header.as_str();
            if CLOSED_HEADERS.contains(&text) || text.starts_with("dueline-") {
                return Err(wrong(format!("header '{name}' cannot be set")));
            }
            // This refuses line breaks, so a value cannot smuggle in another header.
            let value = HeaderValue::from_str(value)
                .map_err(|_| wrong(format!("the value of header '{name}' is not plain text")))?;
            headers.insert(header, value);
        }
        if self.timeout_ms == 0 || self.connect_timeout_ms == 0 {
            return Err(wrong("timeouts must be longer than zero".to_owned()));
        }
        let statuses = self.success_statuses.iter().chain(&self.fatal_statuses);
        if let Some(status) = { statuses }.find(|status| !(200..600).contains(*status)) {
            return Err(wrong(format!("{status} is no final status code")));
        }
        let both = |status| self.fatal_statuses.contains(status);
        if self.success_statuses.iter().any(both) {
            return Err(wrong("a status means both success and failure".to_owned()));
        }
        check_result_max("http", self.result_max_bytes)?;
        Ok(Plan {
            url,
            method,
            headers,
        })
    }
}

/// Clients are kept by their connect timeout, which is a setting of theirs; few of them differ.
const CLIENTS_MAX: usize = 16;

/// The handler.
pub(crate) struct Http {
    settings: HttpSettings,
    clients: Mutex<BTreeMap<u32, Client>>,
}

impl Http {
    pub(crate) fn new(settings: HttpSettings) -> Self {
        // Another part of the process may have chosen one before; any will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clients = Mutex::default();
        Self { settings, clients }
    }

    fn client(&self, connect_timeout_ms: u32) -> Result<Client, Failure> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&connect_timeout_ms) {
            return Ok(client.clone());
        }
        let resolver = GuardedResolver {
            allow_private: self.settings.allow_private,
        };
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .user_agent(concat!("dueline/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(resolver))
            .connect_timeout(Duration::from_millis(connect_timeout_ms.into()))
            .build()
            .map_err(|error| {
                let text = format!("failed to set up the HTTP client: {}", causes(&error));
                Failure::retriable(RetryClass::Slow, text)
            })?;
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        clients.insert(connect_timeout_ms, client.clone());
        Ok(client)
    }

    async fn call(&self, config: &HttpConfig, plan: Plan, task: &RunningTask) -> HandlerResult {
        let client = self.client(config.connect_timeout_ms)?;
        let has_body = plan.method != Method::GET && plan.method != Method::HEAD;
        let mut request = client
            .request(plan.method, plan.url)
            .headers(headers(plan.headers, has_body, task))
            .timeout(Duration::from_millis(config.timeout_ms.into()));
        if has_body {
            request = request.body(task.input().clone());
        }
        match request.send().await {
            Ok(response) => http_reply::read(response, config, task.now()).await,
            Err(error) => Err(unsent(&error)),
        }
    }
}

#[async_trait]
impl Handler for Http {
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        let parsed = from_json::<HttpConfig>("http", task.handler_config())
            .and_then(|config| Ok((config.plan(&self.settings)?, config)));
        let (plan, config) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return Err(Failure::fatal(error.to_string())),
        };
        tokio::select! {
            biased;
            _ = task.stopped() => Err(Failure::Cancelled),
            ended = self.call(&config, plan, task) => ended,
        }
    }
}

/// The job's headers, and those that tell about the task.
fn headers(mut headers: HeaderMap, has_body: bool, task: &RunningTask) -> HeaderMap {
    let id = task.id().to_string();
    let told = [
        ("dueline-job", task.job().to_string()),
        ("dueline-task-id", id.clone()),
        ("dueline-attempt", task.attempt().to_string()),
        ("dueline-token", task.token().to_string()),
        ("idempotency-key", id),
    ];
    for (name, value) in told {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    if has_body && !headers.contains_key(header::CONTENT_TYPE) {
        let given = task.content_type().unwrap_or("application/octet-stream");
        let octets = HeaderValue::from_static("application/octet-stream");
        let value = HeaderValue::from_str(given).unwrap_or(octets);
        headers.insert(header::CONTENT_TYPE, value);
    }
    if let Some(trace) = task.trace().and_then(|it| HeaderValue::from_str(it).ok()) {
        let name = HeaderName::from_static("traceparent");
        headers.entry(name).or_insert(trace);
    }
    headers
}

/// There was no answer.
fn unsent(error: &reqwest::Error) -> Failure {
    match NotAllowed::within(error) {
        Some(refusal) => Failure::fatal(refusal.to_string()),
        None => Failure::retriable(RetryClass::Standard, causes(error)),
    }
}

/// An error with its causes, since the outermost alone says little. The URL is left out: it may hold secrets.
pub(super) fn causes(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() {
        "timed out"
    } else if error.is_connect() {
        "failed to connect"
    } else {
        "failed"
    };
    let mut texts = vec![what.to_owned()];
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.dedup();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for (bad, why) in [
            (r"{}", "missing field `url`"),
            (r#"{"url": "nowhere"}"#, "url"),
            (r#"{"url": "http://127.0.0.1/"}"#, "target_not_allowed"),
            (r#"{"url": "ftp://example.com/"}"#, "target_not_allowed"),
            (r#"{"url": "http://a/", "methods": "PUT"}"#, "unknown field"),
            (r#"{"url": "http://a/", "method": "P T"}"#, "method"),
            (r#"{"url": "http://a/", "method": "CONNECT"}"#, "method"),
            (r#"{"url": "http://a/", "headers": {"Host": "b"}}"#, "Host"),
            (r#"{"url": "http://a/", "headers": {"TE": "b"}}"#, "TE"),
            (
                r#"{"url": "http://a/", "headers": {"Dueline-Job": "b"}}"#,
                "Dueline-Job",
            ),
            (
                r#"{"url": "http://a/", "headers": {"a": "b\r\nc: d"}}"#,
                "plain text",
            ),
            (
                r#"{"url": "http://a/", "headers": {"a b": "c"}}"#,
                "header name",
            ),
            (r#"{"url": "http://a/", "timeout_ms": 0}"#, "timeouts"),
            (r#"{"url": "http://a/", "fatal_statuses": [99]}"#, "99"),
            (
                r#"{"url": "http://a/", "result_max_bytes": 262145}"#,
                "262144",
            ),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
        let settings = HttpSettings {
            allow_private: true,
        };
        assert!(parse_with(r#"{"url": "http://127.0.0.1/"}"#, &settings).is_ok());
    }
}
