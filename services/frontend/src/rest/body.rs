//! The body of a request, with the context of its call.

use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use dueline_api::{ApiError, Call, ErrorKind, ErrorReason, v1};
use futures_util::StreamExt as _;
use http::{Extensions, HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use super::{App, Failure};

/// A request whose body has been read.
pub(super) struct Body {
    pub(super) bytes: Bytes,
    /// Whether the body is lines of JSON.
    pub(super) ndjson: bool,
    pub(super) call: Call,
}

impl Body {
    /// Reads a body of JSON of ordinary size.
    pub(super) async fn read(app: &App, request: Request) -> Result<Self, Failure> {
        Self::read_up_to(app, request, app.limits.body_bytes_max, false).await
    }

    /// Reads the body of a batch: JSON or lines of JSON.
    pub(super) async fn read_batch(app: &App, request: Request) -> Result<Self, Failure> {
        Self::read_up_to(app, request, app.limits.batch_bytes_max, true).await
    }

    async fn read_up_to(
        app: &App,
        request: Request,
        max: usize,
        lines_allowed: bool,
    ) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        let headers = &parts.headers;
        let media = Media::of(headers);
        let time = app.limits.body_time_max;
        let body = tokio::time::timeout(time, collect(body, max))
            .await
            .map_err(|_elapsed| {
                let message = format!("the body did not arrive within {} s", time.as_secs());
                let error = ApiError::new(ErrorKind::Deadline, ErrorReason::SlowBody, message);
                Failure::with_status(error, StatusCode::REQUEST_TIMEOUT)
            })??;
        let ndjson = media == Media::Lines;
        let known = media == Media::Json || (ndjson && lines_allowed);
        if !known && !body.is_empty() {
            let wanted = if lines_allowed {
                "application/json or application/x-ndjson"
            } else {
                "application/json"
            };
            let message = format!("send the body with Content-Type {wanted}");
            let error = ApiError::new(
                ErrorKind::Invalid,
                ErrorReason::UnsupportedMediaType,
                message,
            );
            return Err(Failure::with_status(
                error,
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ));
        }
        Ok(Self {
            bytes: body,
            ndjson,
            call: context(&parts.extensions),
        })
    }

    /// The body as an object that must be there; `missing` is the reason when it is not.
    pub(super) fn object<T: DeserializeOwned>(&self, missing: ErrorReason) -> Result<T, ApiError> {
        if is_nothing(&self.bytes) {
            return Err(nothing(missing));
        }
        v1::parse(&self.bytes)
    }

    /// The body as an object that may be left out.
    pub(super) fn optional<T: DeserializeOwned + Default>(&self) -> Result<T, ApiError> {
        if is_nothing(&self.bytes) {
            return Ok(T::default());
        }
        v1::parse(&self.bytes)
    }
}

/// The context that the edge has put into a request.
pub(super) fn context(extensions: &Extensions) -> Call {
    extensions.get::<Call>().cloned().unwrap_or_default()
}

/// Whether a body or an item says nothing at all.
pub(super) fn is_nothing(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.is_empty() || text == b"null"
}

/// The error of a body or an item that says nothing at all.
pub(super) fn nothing(reason: ErrorReason) -> ApiError {
    let message = match reason {
        ErrorReason::NoTask => "no task is given: the body is empty or null",
        ErrorReason::NoJob => "no job is given: the body is empty or null",
        _ => "the body is empty or null",
    };
    ApiError::new(ErrorKind::Invalid, reason, message)
}

/// Reads a body up to `max` bytes. One that came in a single piece is not copied.
async fn collect(body: axum::body::Body, max: usize) -> Result<Bytes, Failure> {
    let too_large = || {
        let message = format!("the body is too large; at most {max} bytes are allowed");
        ApiError::new(ErrorKind::TooLarge, ErrorReason::BodyTooLarge, message)
    };
    let announced = http_body_len(&body);
    if announced > max {
        return Err(too_large().into());
    }
    let mut pieces = body.into_data_stream();
    let Some(first) = pieces.next().await else {
        return Ok(Bytes::new());
    };
    let mut whole = first.map_err(broken)?;
    let mut grown = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(broken)?;
        if grown.is_empty() {
            grown.reserve(announced.max(whole.len() + piece.len()));
            grown.extend_from_slice(&whole);
        }
        if grown.len() + piece.len() > max {
            return Err(too_large().into());
        }
        grown.extend_from_slice(&piece);
    }
    if !grown.is_empty() {
        whole = grown.freeze();
    }
    if whole.len() > max {
        return Err(too_large().into());
    }
    Ok(whole)
}

/// How many bytes the body will have at least, as its head announces.
fn http_body_len(body: &axum::body::Body) -> usize {
    use hyper::body::Body as _;
    usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX)
}

fn broken(error: axum::Error) -> Failure {
    Failure::invalid(
        ErrorReason::BrokenBody,
        format!("the body broke off: {error}"),
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    Json,
    Lines,
    Other,
}

impl Media {
    /// What the head says; JSON when it says nothing.
    fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(header::CONTENT_TYPE) else {
            return Self::Json;
        };
        let text = value.as_bytes();
        let essence = text.split(|byte| *byte == b';').next().unwrap_or_default();
        let essence = essence.trim_ascii();
        let is = |name: &str| essence.eq_ignore_ascii_case(name.as_bytes());
        if is("application/json") {
            Self::Json
        } else if is("application/x-ndjson") || is("application/ndjson") {
            Self::Lines
        } else {
            Self::Other
        }
    }
}
