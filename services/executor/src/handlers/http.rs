//! The `http` handler: calls a URL.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_api::v1::{HttpBody, HttpConfig, InputView};
use dueline_domain::RetryClass;
use dueline_outbound::{TargetNotAllowed, Url, causes, check_url, is_unanswered};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::{Client, Response};
use tokio::time::Instant;

use super::{http_reply, invalid_settings};
use crate::{Failure, Handler, HandlerResult, RunningTask};

/// Settings of the `http` handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// Whether jobs may call private, local and other addresses that are not public. If not, jobs cannot reach the
    /// executor's own network.
    pub allow_private: bool,
}

/// A job's settings, checked and parsed for a call.
#[derive(Debug)]
struct HttpCall {
    config: HttpConfig,
    url: Url,
    method: Method,
    headers: HeaderMap,
}

impl HttpCall {
    /// Parses and checks a job's settings. Every failure is fatal, because a retry would have the same settings.
    fn parse(config: &str, settings: &HttpSettings) -> Result<Self, Failure> {
        let invalid = |error| invalid_settings(&error);
        let config = HttpConfig::parse(config).map_err(invalid)?;
        // Parsed by the client's own parser, so that the checked target is the one that is called.
        let url = Url::parse(&config.url)
            .map_err(|error| Failure::fatal(format!("handler.config.url: {error}")))?;
        check_url(&url, settings.allow_private)
            .map_err(|refusal| Failure::fatal(refusal.to_string()))?;
        let method = config.http_method().map_err(invalid)?;
        let headers = config.header_map().map_err(invalid)?;
        Ok(Self {
            config,
            url,
            method,
            headers,
        })
    }
}

/// Most cached clients. The connect timeout is a setting of the client, so there is one client for each; few jobs
/// differ in it.
const CLIENTS_MAX: usize = 16;

/// A request that ended without an answer within this time is sent again: the server closed an idle connection. A server
/// that ends later has probably begun to work on the request, so the next try is up to the job's retries.
const CLOSED_MAX: Duration = Duration::from_secs(1);

/// The connect timeout of a client in milliseconds, and whether the client opens a connection for each call.
type ClientKind = (u32, bool);

/// Makes the call of the job's settings.
pub(crate) struct HttpHandler {
    settings: HttpSettings,
    clients: Mutex<BTreeMap<ClientKind, Client>>,
}

impl HttpHandler {
    pub(crate) fn new(settings: HttpSettings) -> Self {
        let clients = Mutex::default();
        Self { settings, clients }
    }

    fn client(&self, kind: ClientKind) -> Result<Client, Failure> {
        let (connect_timeout_ms, is_fresh) = kind;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&kind) {
            return Ok(client.clone());
        }
        let connect_timeout = Duration::from_millis(connect_timeout_ms.into());
        let client =
            dueline_outbound::client(self.settings.allow_private, connect_timeout, !is_fresh);
        let client = client.map_err(|error| {
            let text = format!("failed to set up the HTTP client: {}", causes(&error));
            Failure::retriable(RetryClass::Slow, text)
        })?;
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        clients.insert(kind, client.clone());
        Ok(client)
    }

    async fn send(&self, call: HttpCall, task: &RunningTask) -> HandlerResult {
        let begun = Instant::now();
        let mut answer = self.send_once(&call, task, false).await?;
        let is_closed =
            |error: &reqwest::Error| is_unanswered(error) && begun.elapsed() < CLOSED_MAX;
        if answer.as_ref().is_err_and(is_closed) {
            answer = self.send_once(&call, task, true).await?;
        }
        match answer {
            Ok(response) => http_reply::read(response, &call.config, task.now()).await,
            Err(error) => Err(call_failure(&error)),
        }
    }

    /// Sends the request over a kept-alive connection if there is one, or over a fresh one.
    async fn send_once(
        &self,
        call: &HttpCall,
        task: &RunningTask,
        is_fresh: bool,
    ) -> Result<Result<Response, reqwest::Error>, Failure> {
        let client = self.client((call.config.connect_timeout_ms, is_fresh))?;
        let has_body = call.method != Method::GET && call.method != Method::HEAD;
        let mut request = client
            .request(call.method.clone(), call.url.clone())
            .headers(headers(call, has_body, task))
            .timeout(Duration::from_millis(call.config.timeout_ms.into()));
        if has_body {
            request = request.body(match call.config.body {
                HttpBody::Input => task.input().clone(),
                HttpBody::Results => {
                    InputView::json(task.input(), task.content_type(), task.results())
                }
            });
        }
        Ok(request.send().await)
    }
}

#[async_trait]
impl Handler for HttpHandler {
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        let call = HttpCall::parse(task.handler_config(), &self.settings)?;
        tokio::select! {
            biased;
            _ = task.stopped() => Err(Failure::Cancelled),
            ended = self.send(call, task) => ended,
        }
    }
}

/// The job's headers, and those that describe the task.
fn headers(call: &HttpCall, has_body: bool, task: &RunningTask) -> HeaderMap {
    let mut headers = call.headers.clone();
    let id = task.id().to_string();
    let of_task = [
        ("dueline-job", task.job().to_string()),
        ("dueline-task-id", id.clone()),
        ("dueline-attempt", task.attempt().to_string()),
        ("dueline-token", task.token().to_string()),
        ("idempotency-key", id),
    ];
    for (name, value) in of_task {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    if has_body && !headers.contains_key(header::CONTENT_TYPE) {
        let given = match call.config.body {
            HttpBody::Input => task.content_type().unwrap_or("application/octet-stream"),
            HttpBody::Results => "application/json",
        };
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

/// The failure of a call without a response.
fn call_failure(error: &reqwest::Error) -> Failure {
    match TargetNotAllowed::within(error) {
        Some(refusal) => Failure::fatal(refusal.to_string()),
        None => Failure::retriable(RetryClass::Standard, causes(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_fatal() {
        let public = HttpSettings::default();
        for (bad, why) in [
            (r"{}", "handler.config.url: missing field"),
            (r#"{"url": "nowhere"}"#, "handler.config.url"),
            (r#"{"url": "ftp://example.com/"}"#, "handler.config.url"),
            // Refused by the client's own parser only.
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
            match HttpCall::parse(bad, &public) {
                Err(Failure::Fatal { error }) => assert!(error.starts_with(why), "{bad}: {error}"),
                other => panic!("{bad}: {other:?}"),
            }
        }
        let settings = HttpSettings {
            allow_private: true,
        };
        let call = HttpCall::parse(r#"{"url": "http://127.0.0.1/"}"#, &settings).unwrap();
        assert_eq!(call.method, Method::POST);
    }
}
