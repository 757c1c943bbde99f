//! What an HTTP answer means for the task.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use dueline_api::v1::HttpConfig;
use dueline_domain::{RetryClass, Timestamp};
use http::{HeaderMap, StatusCode, header};
use reqwest::Response;

use super::{cut_result, http::causes};
use crate::{Failure, HandlerResult, Success};

/// How much of the body of a failure goes into its text.
const ERROR_BODY_BYTES_MAX: usize = 1_024;
/// Longest wait that the other side may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);

/// What a status means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
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
    if meaning == Meaning::Success {
        let (bytes, is_cut) = body(&mut response, config.result_max_bytes).await?;
        let total = (!is_cut).then_some(bytes.len());
        let result = cut_result(bytes, config.result_max_bytes, total);
        let result = Some(Bytes::from(result));
        return Ok(Success { result });
    }
    let asked = retry_after(response.headers(), now);
    // The status has said it; a body that breaks off adds nothing.
    let text = body(&mut response, ERROR_BODY_BYTES_MAX).await;
    let text = text.map(|(bytes, _)| String::from_utf8_lossy(&bytes).trim().to_owned());
    let error = error_text(status, &text.unwrap_or_default());
    if meaning == Meaning::Fatal {
        return Err(Failure::fatal(error));
    }
    let (class, delay) = match (status, asked) {
        (StatusCode::TOO_MANY_REQUESTS, asked) => (RetryClass::RateLimited, asked),
        (StatusCode::SERVICE_UNAVAILABLE, Some(asked)) => (RetryClass::RateLimited, Some(asked)),
        (StatusCode::SERVICE_UNAVAILABLE, None) => (RetryClass::Slow, None),
        _ => (RetryClass::Standard, None),
    };
    Err(Failure::Retriable {
        class,
        delay,
        error,
    })
}

fn meaning(status: StatusCode, config: &HttpConfig) -> Meaning {
    let code = status.as_u16();
    if config.success_statuses.contains(&code) {
        return Meaning::Success;
    }
    if config.fatal_statuses.contains(&code) {
        return Meaning::Fatal;
    }
    match code {
        200..300 => Meaning::Success,
        // Timeout, too early, too many: they pass. So do the server's own troubles.
        408 | 425 | 429 | 500..600 => Meaning::Retriable,
        _ => Meaning::Fatal,
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

/// The first `max` bytes of the body, and whether there was more. More than that is never read.
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
                let text = format!("failed to read the answer: {}", causes(&error));
                return Err(Failure::retriable(RetryClass::Standard, text));
            }
        }
    }
}

/// The wait that the other side asks for, in seconds or as a date.
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
    fn a_wait_is_asked_for_in_seconds_or_until_a_date() {
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
    fn a_status_means_what_the_table_says_unless_the_job_says_otherwise() {
        let plain = HttpConfig::parse(r#"{"url": "http://a/"}"#).unwrap();
        let json = r#"{"url": "http://a/", "success_statuses": [404], "fatal_statuses": [500]}"#;
        let own = HttpConfig::parse(json).unwrap();
        let of = |code, config| meaning(StatusCode::from_u16(code).unwrap(), config);
        for (code, expected) in [
            (200, Meaning::Success),
            (204, Meaning::Success),
            (301, Meaning::Fatal),
            (304, Meaning::Fatal),
            (400, Meaning::Fatal),
            (404, Meaning::Fatal),
            (408, Meaning::Retriable),
            (425, Meaning::Retriable),
            (429, Meaning::Retriable),
            (500, Meaning::Retriable),
            (503, Meaning::Retriable),
            (599, Meaning::Retriable),
        ] {
            assert_eq!(of(code, &plain), expected, "{code}");
        }
        assert_eq!(of(404, &own), Meaning::Success);
        assert_eq!(of(500, &own), Meaning::Fatal);
    }
}
