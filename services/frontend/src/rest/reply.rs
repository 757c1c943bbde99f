//! Answers that are no failures.

use axum::response::Response;
use dueline_api::{ApiError, ErrorKind, ErrorReason};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// A JSON answer.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Result<Response, ApiError> {
    let text = serde_json::to_vec(body).map_err(|error| {
        let message = format!("the answer cannot be written: {error}");
        ApiError::new(ErrorKind::Internal, ErrorReason::Corrupt, message)
    })?;
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

/// An answer of nothing but a status.
pub(super) fn empty() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
