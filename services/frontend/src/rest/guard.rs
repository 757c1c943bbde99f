//! What holds for every call: where it may come from, how many there may be, how long it may take, and that even a
//! panic is answered.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use dueline_api::{ApiError, ErrorKind};
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, Uri, header};

use super::{App, Failure, failure::render, gate::Place};

const REQUEST_ID: &str = "x-request-id";
const TIMEOUT: &str = "dueline-timeout-ms";

pub(super) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let request_id = request.headers().get(REQUEST_ID).cloned();
    let mut response = match handle(&app, request, next).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(),
    };
    if response.status().as_u16() >= 400 {
        render(&mut response, || named(request_id.as_ref(), &app));
    }
    response
}

async fn handle(app: &App, request: Request, next: Next) -> Result<Response, Failure> {
    check_origin(request.headers(), request.uri())?;
    let time = handling_time(request.headers(), app.limits.handling_max)?;
    let _place = admit(app, request.uri())?;
    let run = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout(time, run).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(_panic)) => {
            // The panic hook has told where it was.
            let message = "the server made a mistake; its log knows more";
            Err(ApiError::new(ErrorKind::Internal, "panic", message).into())
        }
        Err(_elapsed) => {
            let message = format!(
                "no answer within {} ms; the call may have taken effect",
                time.as_millis()
            );
            Err(ApiError::new(ErrorKind::Deadline, "deadline", message).into())
        }
    }
}

/// The id the client gave, or a new one.
fn named(given: Option<&HeaderValue>, app: &App) -> String {
    given
        .and_then(|value| value.to_str().ok())
        .filter(|text| !text.is_empty() && text.len() <= 128)
        .map_or_else(|| format!("{:016x}", app.rng.next_u64()), str::to_owned)
}

/// Refuses calls that a page of another site makes a browser send.
fn check_origin(headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or_else(|| uri.authority().map(http::uri::Authority::as_str));
    let origin_host = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"))
        .map(|(_, host)| host);
    match (origin_host, host) {
        (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => {
            let message = "calls from pages of another site are not allowed";
            Err(ApiError::new(ErrorKind::Denied, "cross_origin", message))
        }
    }
}

/// How long the call may take: as its client says, within the server's bound.
fn handling_time(headers: &HeaderMap, max: Duration) -> Result<Duration, ApiError> {
    let Some(value) = headers.get(TIMEOUT) else {
        return Ok(max);
    };
    let millis = value.to_str().ok().and_then(|text| text.parse().ok());
    match millis {
        Some(millis) if millis > 0 => Ok(Duration::from_millis(millis).min(max)),
        _ => {
            let message = "must be a whole number of milliseconds above zero";
            Err(ApiError::invalid(
                "Dueline-Timeout-Ms",
                "invalid_header",
                message,
            ))
        }
    }
}

/// A place for the call, or an answer to come again. Questions about the server's own health always get in.
fn admit<'a>(app: &'a App, uri: &Uri) -> Result<Option<Place<'a>>, ApiError> {
    let path = uri.path();
    if !path.starts_with("/v1/") {
        return Ok(None);
    }
    let waits = path == "/v1/work:next" || uri.query().is_some_and(|q| q.contains("wait="));
    let gate = if waits { &app.waiting } else { &app.in_flight };
    let place = gate.enter().ok_or_else(|| {
        let message = "too many calls at once";
        ApiError::new(ErrorKind::Unavailable, "overloaded", message)
            .with_retry_after(Duration::from_secs(1))
    })?;
    Ok(Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, origin: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        headers.insert(header::ORIGIN, origin.parse().unwrap());
        check_origin(&headers, &Uri::from_static("/")).is_ok()
    }

    #[test]
    fn only_the_same_host_and_port_is_the_same_origin() {
        assert!(check("localhost:7070", "http://localhost:7070"));
        assert!(check("Example.org", "https://example.org"));
        assert!(!check("localhost:7070", "http://localhost:8080"));
        assert!(!check("localhost:7070", "http://evil.example"));
        assert!(!check("localhost:7070", "null"));
        assert!(!check(
            "localhost:7070",
            "http://localhost:7070.evil.example"
        ));
    }
}
