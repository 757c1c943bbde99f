//! A client of the server's REST API.

use std::{net::IpAddr, time::Duration};

use dueline_api::{ErrorKind, ErrorReason, v1::Problem};
use reqwest::{Method, Url};
use serde::{Serialize, de::DeserializeOwned};

use crate::exit::CliError;

/// Longest time to connect to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest stream of events; afterwards a watch begins another one.
const STREAM_MAX: Duration = Duration::from_secs(86_400);
/// Header with the name of the caller. The server stores the name with what is created.
const CALLER_HEADER: &str = "dueline-caller";
/// Header with the client's timeout, so that the server drops a request that the client no longer waits for.
const TIMEOUT_HEADER: &str = "dueline-timeout-ms";

/// A client of one server.
#[derive(Clone, Debug)]
pub(crate) struct RestClient {
    http: reqwest::Client,
    server: Url,
    caller: Option<String>,
    timeout: Duration,
}

/// The body of a request.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// No body.
    Empty,
    /// A JSON document.
    Json(Vec<u8>),
    /// JSON documents, one per line.
    Lines(Vec<u8>),
}

impl RequestBody {
    /// A value as JSON.
    pub(crate) fn json(value: &impl Serialize) -> Result<Self, CliError> {
        let json = serde_json::to_vec(value);
        let invalid = |error: serde_json::Error| {
            CliError::invalid(format!("the request cannot be written as JSON: {error}"))
        };
        json.map(Self::Json).map_err(invalid)
    }
}

impl RestClient {
    /// A client of `server` that waits at most `timeout` for each response.
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

    /// Sends a GET request. `path` follows `/v1`; each part is escaped.
    pub(crate) async fn get(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<JsonAnswer, CliError> {
        self.call(
            Method::GET,
            self.url(path, query),
            RequestBody::Empty,
            self.timeout,
        )
        .await
    }

    /// As [`RestClient::get`], for a long poll: the server may delay its response by up to `wait`.
    pub(crate) async fn get_waiting(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        wait: Duration,
    ) -> Result<JsonAnswer, CliError> {
        let timeout = self.timeout.saturating_add(wait);
        self.call(
            Method::GET,
            self.url(path, query),
            RequestBody::Empty,
            timeout,
        )
        .await
    }

    /// Opens a stream of events. It has no end of its own.
    pub(crate) async fn open(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<reqwest::Response, CliError> {
        let request = self.http.get(self.url(path, query)).timeout(STREAM_MAX);
        let request = match &self.caller {
            Some(caller) => request.header(CALLER_HEADER, caller),
            None => request,
        };
        let sent = tokio::time::timeout(self.timeout, request.send()).await;
        let Ok(sent) = sent else {
            let message = format!("{} did not respond in time", self.server);
            return Err(CliError::new(
                ErrorKind::Unavailable,
                ErrorReason::Unreachable,
                message,
            ));
        };
        let response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await;
        let body = body.map_err(|error| self.unreachable(&error))?;
        Err(problem(status.as_u16(), &body).into())
    }

    /// Sends a POST request without a body. `path` follows `/v1`; each part is escaped.
    pub(crate) async fn post(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<JsonAnswer, CliError> {
        let url = self.url(path, query);
        self.call(Method::POST, url, RequestBody::Empty, self.timeout)
            .await
    }

    /// Sends a request with a body. `path` follows `/v1`; each part is escaped.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: RequestBody,
    ) -> Result<JsonAnswer, CliError> {
        self.call(method, self.url(path, &[]), body, self.timeout)
            .await
    }

    /// Reads a page outside `/v1`: whether the status is a success, and the text.
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
        body: RequestBody,
        timeout: Duration,
    ) -> Result<JsonAnswer, CliError> {
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
            RequestBody::Empty => request,
            RequestBody::Json(json) => request
                .header("content-type", "application/json")
                .body(json),
            RequestBody::Lines(lines) => request
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
        text.map(JsonAnswer)
            .map_err(|_| malformed(&"it is not UTF-8"))
    }

    fn unreachable(&self, error: &reqwest::Error) -> CliError {
        let (server, cause) = (&self.server, root_cause(error));
        if error.is_timeout() && !error.is_connect() {
            let message =
                format!("{server} did not respond in time; the request may have taken effect");
            return CliError::new(ErrorKind::Deadline, ErrorReason::NoAnswer, message);
        }
        if error.is_builder() {
            return CliError::invalid(format!("the request cannot be sent: {cause}"));
        }
        let message = format!("cannot reach {server}: {cause}");
        if server.scheme() == "https" {
            let plain = server.as_str().replacen("https", "http", 1);
            let plain = plain.trim_end_matches('/');
            let hint = format!("the server does not support TLS; without a TLS proxy, try {plain}");
            return CliError::new(ErrorKind::Unavailable, ErrorReason::Unreachable, message)
                .with_hint(hint);
        }
        CliError::new(ErrorKind::Unavailable, ErrorReason::Unreachable, message)
            .with_hint("is `dueline dev` running? --server or DUELINE_SERVER names another server")
    }
}

/// The body of a response, byte for byte: `--json` must print every digit of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonAnswer(String);

impl JsonAnswer {
    /// An answer that this program composes.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        Self(serde_json::to_string(value).unwrap_or_default())
    }

    /// The JSON text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The answer as a value of type `T`.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, CliError> {
        serde_json::from_str(&self.0).map_err(|error| malformed(&error))
    }
}

fn malformed(error: &dyn std::fmt::Display) -> CliError {
    let message = format!("the response of the server is malformed: {error}");
    CliError::new(
        ErrorKind::Internal,
        ErrorReason::AnswerNotUnderstood,
        message,
    )
    .with_hint("is this a Dueline server of the same version?")
}

/// The HTTP client for calls to `server`. It follows no redirects and uses no proxy for a loopback address.
pub(crate) fn http(server: &str, timeout: Duration) -> Result<reqwest::Client, CliError> {
    let url = parse(server)?;
    // This fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none());
    if is_loopback(&url) {
        builder = builder.no_proxy();
    }
    if url.scheme() == "http" {
        // Plain HTTP needs no root certificates, and a small image may have none.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let message = format!("cannot create an HTTP client: {}", root_cause(&error));
        CliError::new(ErrorKind::Internal, ErrorReason::NoClient, message)
    })
}

fn parse(server: &str) -> Result<Url, CliError> {
    let hint = "write it as http://127.0.0.1:7070";
    let invalid = |why: &dyn std::fmt::Display| {
        CliError::invalid(format!("'{server}' is not a valid server address: {why}"))
            .with_hint(hint)
    };
    let url = Url::parse(server).map_err(|error| invalid(&error))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(invalid(&"it must begin with http:// or https://"));
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

/// The problem document of a response. A response that is not from Dueline, such as a proxy's, has none: its status
/// decides.
fn problem(status: u16, body: &[u8]) -> Problem {
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        return problem;
    }
    let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
    let detail = match text.trim() {
        "" => format!("the server responded with status {status}"),
        text => format!("the server responded with status {status}: {text}"),
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

/// The text of the innermost error, which names the cause that a user can act on.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
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

    fn client(server: &str) -> RestClient {
        RestClient::new(server, Duration::from_secs(1), None).unwrap()
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
    fn an_invalid_server_address_is_refused() {
        for bad in ["", "localhost:7070", "ftp://h", "http://"] {
            let error = RestClient::new(bad, Duration::from_secs(1), None).expect_err(bad);
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
    fn a_response_that_is_not_from_dueline_has_the_exit_code_of_its_status() {
        let exit = |status| CliError::from(problem(status, b"<html>")).exit();
        assert_eq!(exit(404), Exit::NotFound);
        assert_eq!(exit(502), Exit::Unavailable);
        assert_eq!(exit(500), Exit::Internal);
        assert!(problem(502, b"<html>").detail.contains("502: <html>"));
    }
}
