//! Talks to the server over REST.

use std::{net::IpAddr, time::Duration};

use dueline_api::{ErrorKind, v1::Problem};
use reqwest::{Method, Url};
use serde::{Serialize, de::DeserializeOwned};

use crate::exit::CliError;

/// Longest time to reach the server at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Names who calls; the server keeps it with what is created.
const CALLER_HEADER: &str = "dueline-caller";
/// Says how long this side waits, so that the server does not work for nobody.
const TIMEOUT_HEADER: &str = "dueline-timeout-ms";

/// A client of one server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: Url,
    caller: Option<String>,
    timeout: Duration,
}

/// What to send.
#[derive(Debug)]
pub(crate) enum Body {
    /// Nothing.
    Empty,
    /// A JSON document.
    Json(Vec<u8>),
    /// JSON documents, one a line.
    Lines(Vec<u8>),
}

impl Body {
    /// A value as JSON.
    pub(crate) fn json(value: &impl Serialize) -> Result<Self, CliError> {
        let json = serde_json::to_vec(value);
        let wrong = |error: serde_json::Error| CliError::invalid(format!("no JSON: {error}"));
        json.map(Self::Json).map_err(wrong)
    }
}

impl Client {
    /// A client of `server`, whose answers take at most `timeout`.
    pub(crate) fn new(
        server: &str,
        timeout: Duration,
        caller: Option<String>,
    ) -> Result<Self, CliError> {
        let http = http(server, timeout)?;
        Ok(Self {
            http,
            server: parse(server)?,
            caller,
            timeout,
        })
    }

    /// Reads. `path` follows `/v1`; each part is escaped.
    pub(crate) async fn get(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<Answer, CliError> {
        self.call(
            Method::GET,
            self.url(path, query),
            Body::Empty,
            self.timeout,
        )
        .await
    }

    /// As [`Client::get`], for an answer that the server may hold back for `wait`.
    pub(crate) async fn get_waiting(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        wait: Duration,
    ) -> Result<Answer, CliError> {
        let timeout = self.timeout.saturating_add(wait);
        self.call(Method::GET, self.url(path, query), Body::Empty, timeout)
            .await
    }

    /// Sends.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: Body,
    ) -> Result<Answer, CliError> {
        self.call(method, self.url(path, &[]), body, self.timeout)
            .await
    }

    /// Reads a page outside `/v1`: whether the status is a success, and what it says.
    pub(crate) async fn probe(&self, name: &str) -> Result<(bool, String), CliError> {
        let mut url = self.server.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().push(name);
        }
        let response = self.http.get(url).send().await;
        let response = response.map_err(|error| self.unreachable(&error))?;
        let ok = response.status().is_success();
        let text = response
            .text()
            .await
            .map_err(|error| self.unreachable(&error))?;
        Ok((ok, text))
    }

    fn url(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.server.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().push("v1").extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn call(
        &self,
        method: Method,
        url: Url,
        body: Body,
        timeout: Duration,
    ) -> Result<Answer, CliError> {
        let timeout_ms = crate::units::millis(timeout).max(1);
        let mut request = self
            .http
            .request(method, url)
            .timeout(timeout)
            .header(TIMEOUT_HEADER, timeout_ms);
        if let Some(caller) = &self.caller {
            request = request.header(CALLER_HEADER, caller);
        }
        let request = match body {
            Body::Empty => request,
            Body::Json(json) => request
                .header("content-type", "application/json")
                .body(json),
            Body::Lines(lines) => request
                .header("content-type", "application/x-ndjson")
                .body(lines),
        };
        let response = request
            .send()
            .await
            .map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let body = response
            .bytes()
            .await
            .map_err(|error| self.unreachable(&error))?;
        if !status.is_success() {
            return Err(problem(status.as_u16(), &body).into());
        }
        let text = String::from_utf8(body.into());
        text.map(Answer)
            .map_err(|_| not_understood(&"it is not UTF-8"))
    }

    fn unreachable(&self, error: &reqwest::Error) -> CliError {
        let (server, cause) = (&self.server, root_cause(error));
        if error.is_timeout() && !error.is_connect() {
            let message = format!("{server} gave no answer in time; it may have taken effect");
            return CliError::new(ErrorKind::Deadline, "no_answer", message);
        }
        if error.is_builder() {
            return CliError::invalid(format!("the request cannot be sent: {cause}"));
        }
        let message = format!("cannot reach {server}: {cause}");
        if server.scheme() == "https" {
            let plain = server.as_str().replacen("https", "http", 1);
            let plain = plain.trim_end_matches('/');
            let hint =
                format!("the server itself speaks no TLS; without a proxy before it, try {plain}");
            return CliError::new(ErrorKind::Unavailable, "unreachable", message).with_hint(hint);
        }
        CliError::new(ErrorKind::Unavailable, "unreachable", message)
            .with_hint("is `dueline dev` running? --server or DUELINE_SERVER names another server")
    }
}

/// The body of an answer, exactly as it came: programs must see every digit of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer(String);

impl Answer {
    /// An answer put together on this side.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        Self(serde_json::to_string(value).unwrap_or_default())
    }

    /// As text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// In its typed form.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, CliError> {
        serde_json::from_str(&self.0).map_err(|error| not_understood(&error))
    }
}

fn not_understood(error: &dyn std::fmt::Display) -> CliError {
    let message = format!("the server's answer is not understood: {error}");
    CliError::new(ErrorKind::Internal, "answer_not_understood", message)
        .with_hint("is this a Dueline server of the same version?")
}

/// The HTTP client for calls to `server`. It follows no redirects, and a server on this machine is never sought
/// behind a proxy.
pub(crate) fn http(server: &str, timeout: Duration) -> Result<reqwest::Client, CliError> {
    let url = parse(server)?;
    // Fails when it is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none());
    if is_loopback(&url) {
        builder = builder.no_proxy();
    }
    if url.scheme() == "http" {
        // Without TLS there is no need for root certificates, which a small image may not have.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let message = format!("no HTTP client can be made: {}", root_cause(&error));
        CliError::new(ErrorKind::Internal, "no_client", message)
    })
}

fn parse(server: &str) -> Result<Url, CliError> {
    let hint = "write it as http://127.0.0.1:7070";
    let wrong = |why: &dyn std::fmt::Display| {
        CliError::invalid(format!("'{server}' is no address of a server: {why}")).with_hint(hint)
    };
    let url = Url::parse(server).map_err(|error| wrong(&error))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong(&"it must begin with http:// or https://"));
    }
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    match address {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// The problem that an answer tells, or one that follows from its status when something else than Dueline answered.
fn problem(status: u16, body: &[u8]) -> Problem {
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        return problem;
    }
    let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
    let detail = match text.trim() {
        "" => format!("the server answered with status {status}"),
        text => format!("the server answered with status {status}: {text}"),
    };
    Problem {
        type_uri: String::new(),
        title: String::new(),
        status,
        detail,
        kind: String::new(),
        reason: "foreign_answer".into(),
        retryable: false,
        field: None,
        state: None,
        owner: None,
        retry_after_ms: None,
        request_id: None,
    }
}

/// The innermost error, which is the one that people can do something about.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn client(server: &str) -> Client {
        Client::new(server, Duration::from_secs(1), None).unwrap()
    }

    #[test]
    fn parts_of_paths_and_queries_are_escaped() {
        let client = client("http://h:1/base/");
        let url = client.url(&["jobs", "a/b", "tasks:batch"], &[("tag", "x&y z".into())]);
        assert_eq!(
            url.as_str(),
            "http://h:1/base/v1/jobs/a%2Fb/tasks:batch?tag=x%26y+z"
        );
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in ["", "localhost:7070", "ftp://h", "http://"] {
            let error = Client::new(bad, Duration::from_secs(1), None).expect_err(bad);
            assert_eq!(error.exit(), Exit::Invalid, "{bad}");
        }
    }

    #[test]
    fn loopback_is_recognised_in_all_its_forms() {
        for (server, loopback) in [
            ("http://127.0.0.1:1", true),
            ("http://127.9.9.9", true),
            ("http://[::1]:7070", true),
            ("http://localhost", true),
            ("http://example.com", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(&parse(server).unwrap()), loopback, "{server}");
        }
    }

    #[test]
    fn an_answer_of_something_else_than_dueline_still_has_an_exit_code() {
        let exit = |status| CliError::from(problem(status, b"<html>")).exit();
        assert_eq!(exit(404), Exit::NotFound);
        assert_eq!(exit(502), Exit::Unavailable);
        assert_eq!(exit(500), Exit::Internal);
        assert!(problem(502, b"<html>").detail.contains("502: <html>"));
    }
}
