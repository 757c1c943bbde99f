//! The context of a call, from its headers: those of REST, or the metadata of gRPC.

use std::{sync::Arc, time::Duration};

use dueline_api::{ApiError, Call, ErrorReason};
use dueline_domain::limits;
use dueline_ports::Rng;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

/// How long a REST call may take, in milliseconds.
const TIMEOUT_REST: &str = "dueline-timeout-ms";
/// The same in gRPC: a number with a unit, as in `200m`.
const TIMEOUT_GRPC: &str = "grpc-timeout";

/// The request's id: that of its header, or a new one.
pub(super) fn request_id(headers: &HeaderMap, rng: &dyn Rng) -> Arc<str> {
    let given = headers
        .get(Call::REQUEST_ID)
        .and_then(|value| value.to_str().ok());
    given
        .filter(|text| !text.is_empty() && text.len() <= 128)
        .map_or_else(|| format!("{:016x}", rng.next_u64()).into(), Arc::from)
}

/// The context of a call that takes at most `time_max`.
pub(super) fn call(
    headers: &HeaderMap,
    request_id: Arc<str>,
    time_max: Duration,
) -> Result<Call, ApiError> {
    let time = timeout(headers)?.unwrap_or(time_max).min(time_max);
    Ok(Call {
        principal: principal(headers)?,
        deadline: Some(Instant::now() + time),
        trace: trace(headers),
        request_id: Some(request_id),
    })
}

fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    if let Some(value) = headers.get(TIMEOUT_REST) {
        let millis = value.to_str().ok().and_then(|text| text.parse().ok());
        return match millis {
            Some(millis) if millis > 0 => Ok(Some(Duration::from_millis(millis))),
            _ => {
                let message = "must be a whole number of milliseconds above zero";
                let field = "Dueline-Timeout-Ms";
                Err(ApiError::invalid(
                    field,
                    ErrorReason::InvalidHeader,
                    message,
                ))
            }
        };
    }
    let Some(value) = headers.get(TIMEOUT_GRPC) else {
        return Ok(None);
    };
    grpc_timeout(value).map(Some).ok_or_else(|| {
        let message = "must be at most 8 digits and one of the units H, M, S, m, u, n";
        ApiError::invalid(TIMEOUT_GRPC, ErrorReason::InvalidHeader, message)
    })
}

fn grpc_timeout(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

fn principal(headers: &HeaderMap) -> Result<Option<Arc<str>>, ApiError> {
    let Some(value) = headers.get(Call::PRINCIPAL) else {
        return Ok(None);
    };
    let max = limits().text_bytes_max;
    let text = std::str::from_utf8(value.as_bytes())
        .ok()
        .map(str::trim)
        .filter(|text| !text.is_empty() && text.len() <= max)
        .ok_or_else(|| {
            let message = format!("must be a text of 1 to {max} bytes");
            ApiError::invalid("Dueline-Caller", ErrorReason::InvalidHeader, message)
        })?;
    Ok(Some(Arc::from(text)))
}

/// The trace context of the call. One that is not well formed is ignored, as W3C requires.
fn trace(headers: &HeaderMap) -> Option<Arc<str>> {
    let text = headers.get(Call::TRACE)?.to_str().ok()?;
    dueline_trace::is_well_formed(text).then(|| Arc::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_019_a_timeout_of_grpc_has_a_unit() {
        let parse = |text: &str| grpc_timeout(&HeaderValue::try_from(text).unwrap());
        for (text, millis) in [
            ("2H", 7_200_000),
            ("1M", 60_000),
            ("3S", 3_000),
            ("200m", 200),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("5u"), Some(Duration::from_micros(5)));
        assert_eq!(parse("7n"), Some(Duration::from_nanos(7)));
        for bad in ["", "S", "5", "5x", "-5S", "123456789S", "1.5S"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
