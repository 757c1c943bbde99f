//! Calls a URL.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_api::v1::HttpConfig;
use dueline_domain::RetryClass;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::{Client, Url};

use super::{
    http_guard::{GuardedResolver, NotAllowed, check_url},
    http_reply, unusable,
};
use crate::{Failure, Handler, HandlerResult, HttpSettings, RunningTask};

/// Settings in the form that a call needs.
#[derive(Debug)]
struct Plan {
    config: HttpConfig,
    url: Url,
    method: Method,
    headers: HeaderMap,
}

impl Plan {
    /// Makes a plan of a job's settings. No error is worth another try.
    fn of(config: &str, settings: &HttpSettings) -> Result<Self, Failure> {
        let unusable = |error| unusable(&error);
        let config = HttpConfig::parse(config).map_err(unusable)?;
        // The parser of the client that will call, so what is looked at here is where the call goes.
        let url = Url::parse(&config.url)
            .map_err(|error| Failure::fatal(format!("handler.config.url: {error}")))?;
        check_url(&url, settings.allow_private)
            .map_err(|refusal| Failure::fatal(refusal.to_string()))?;
        let method = config.http_method().map_err(unusable)?;
        let headers = config.header_map().map_err(unusable)?;
        Ok(Self {
            config,
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

    async fn call(&self, plan: Plan, task: &RunningTask) -> HandlerResult {
        let config = plan.config;
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
            Ok(response) => http_reply::read(response, &config, task.now()).await,
            Err(error) => Err(unsent(&error)),
        }
    }
}

#[async_trait]
impl Handler for Http {
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        let plan = Plan::of(task.handler_config(), &self.settings)?;
        tokio::select! {
            biased;
            _ = task.stopped() => Err(Failure::Cancelled),
            ended = self.call(plan, task) => ended,
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
    fn settings_that_cannot_work_are_fatal() {
        let public = HttpSettings::default();
        for (bad, why) in [
            (r"{}", "handler.config.url: missing field"),
            (r#"{"url": "nowhere"}"#, "handler.config.url"),
            (r#"{"url": "ftp://example.com/"}"#, "handler.config.url"),
            // What only the client's own parser refuses.
            (r#"{"url": "http://1.2.3.4.5/"}"#, "handler.config.url"),
            (r#"{"url": "http://127.0.0.1/"}"#, "target_not_allowed"),
            (
                r#"{"url": "http://a/", "method": "CONNECT"}"#,
                "handler.config.method",
            ),
            (
                r#"{"url": "http://a/", "headers": {"Host": "b"}}"#,
                "handler.config.headers",
            ),
        ] {
            match Plan::of(bad, &public) {
                Err(Failure::Fatal { error }) => assert!(error.starts_with(why), "{bad}: {error}"),
                other => panic!("{bad}: {other:?}"),
            }
        }
        let settings = HttpSettings {
            allow_private: true,
        };
        let plan = Plan::of(r#"{"url": "http://127.0.0.1/"}"#, &settings).unwrap();
        assert_eq!(plan.method, Method::POST);
    }
}
