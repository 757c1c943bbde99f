//! Turns an HTTP response into the result of a run.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use dueline_api::v1::HttpConfig;
use dueline_domain::{RetryClass, Timestamp};
use dueline_outbound::causes;
use http::{HeaderMap, StatusCode, header};
use reqwest::Response;

use super::cut_result;
use crate::{Failure, HandlerResult, Success};

/// How much of the response body of a failure becomes part of its error text.
const ERROR_BODY_BYTES_MAX: usize = 1_024;
/// Longest delay that `Retry-After` may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);

/// What a status means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusMeaning {
    Success,
    Fatal,
    Retriable,
}

pub(super) async fn read(
    mut response: Response,
    config: &HttpConfig,
    now: Timestamp,
) -> HandlerResult {
    let status = response.status();
    let meaning = meaning(status, config);
    if meaning == StatusMeaning::Success {
        let (bytes, is_cut) = body(&mut response, config.result_max_bytes).await?;
        let total = (!is_cut).then_some(bytes.len());
        let result = cut_result(bytes, config.result_max_bytes, total);
        let result = Some(Bytes::from(result));
        return Ok(Success { result });
    }
    let retry_after = retry_after(response.headers(), now);
    // An error while reading the body is ignored, because the status already decides.
    let text = body(&mut response, ERROR_BODY_BYTES_MAX).await;
    let text = text.map(|(bytes, _)| String::from_utf8_lossy(&bytes).trim().to_owned());
    let error = error_text(status, &text.unwrap_or_default());
    if meaning == StatusMeaning::Fatal {
        return Err(Failure::fatal(error));
    }
    let (class, delay) = match (status, retry_after) {
        (StatusCode::TOO_MANY_REQUESTS, delay) => (RetryClass::RateLimited, delay),
        (StatusCode::SERVICE_UNAVAILABLE, Some(delay)) => (RetryClass::RateLimited, Some(delay)),
        (StatusCode::SERVICE_UNAVAILABLE, None) => (RetryClass::Slow, None),
        _ => (RetryClass::Standard, None),
    };
    Err(Failure::Retriable {
        class,
        delay,
        error,
    })
}

fn meaning(status: StatusCode, config: &HttpConfig) -> StatusMeaning {
    let code = status.as_u16();
    if config.success_statuses.contains(&code) {
        return StatusMeaning::Success;
    }
    if config.fatal_statuses.contains(&code) {
        return StatusMeaning::Fatal;
    }
    match code {
        200..300 => StatusMeaning::Success,
        // Timeout, too early, too many requests, and errors of the server are temporary.
        408 | 425 | 429 | 500..600 => StatusMeaning::Retriable,
        _ => StatusMeaning::Fatal,
    }
}

fn error_text(status: StatusCode, body: &str) -> String {
    let hint = if status.is_redirection() {
        " (redirects are not followed)"
    } else {
        ""
    };
    let colon = if body.is_empty() { "" } else { ": " };
    format!("status {}{hint}{colon}{body}", status.as_u16())
}

/// The first `max` bytes of the body, and whether it is longer. Reading stops after that.
async fn body(response: &mut Response, max: usize) -> Result<(Vec<u8>, bool), Failure> {
    let mut kept = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = max - kept.len();
                kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    return Ok((kept, true));
                }
            }
            Ok(None) => return Ok((kept, false)),
            Err(error) => {
                let text = format!("failed to read the response: {}", causes(&error));
                return Err(Failure::retriable(RetryClass::Standard, text));
            }
        }
    }
}

/// The delay of a `Retry-After` header, which is in seconds or a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            let now = Duration::from_millis(now.millis().unsigned_abs());
            at.saturating_sub(now)
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_in_seconds_or_a_date() {
        let now = Timestamp::clamped(784_111_777_000);
        let wait = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0));
        assert_eq!(wait("999999999"), Some(86_400));
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn a_status_has_its_default_meaning_unless_the_job_overrides_it() {
        let plain = HttpConfig::parse(r#"{"url": "http://a/"}"#).unwrap();
        let json = r#"{"url": "http://a/", "success_statuses": [404], "fatal_statuses": [500]}"#;
        let own = HttpConfig::parse(json).unwrap();
        let of = |code, config| meaning(StatusCode::from_u16(code).unwrap(), config);
        for (code, expected) in [
            (200, StatusMeaning::Success),
            (204, StatusMeaning::Success),
            (301, StatusMeaning::Fatal),
            (304, StatusMeaning::Fatal),
            (400, StatusMeaning::Fatal),
            (404, StatusMeaning::Fatal),
            (408, StatusMeaning::Retriable),
            (425, StatusMeaning::Retriable),
            (429, StatusMeaning::Retriable),
            (500, StatusMeaning::Retriable),
            (503, StatusMeaning::Retriable),
            (599, StatusMeaning::Retriable),
        ] {
            assert_eq!(of(code, &plain), expected, "{code}");
        }
        assert_eq!(of(404, &own), StatusMeaning::Success);
        assert_eq!(of(500, &own), StatusMeaning::Fatal);
    }
}
