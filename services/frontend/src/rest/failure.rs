//! Every failure is a problem document.

use axum::response::{IntoResponse, Response};
use dueline_api::{ApiError, ErrorKind, ErrorReason, v1::Problem};
use dueline_runtime::LogLimit;
use http::{HeaderValue, StatusCode, header};

/// The lines about calls that could not be served for now: while the disk is full or the store is away, every call is
/// one.
static UNAVAILABLE: LogLimit = LogLimit::new();

/// A failed call: an error, and sometimes an HTTP status that says more than its kind.
#[derive(Debug)]
pub(crate) struct Failure {
    error: ApiError,
    status: Option<StatusCode>,
}

impl Failure {
    pub(crate) const fn with_status(error: ApiError, status: StatusCode) -> Self {
        Self {
            error,
            status: Some(status),
        }
    }

    pub(crate) fn invalid(reason: ErrorReason, message: impl Into<String>) -> Self {
        ApiError::new(ErrorKind::Invalid, reason, message).into()
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self {
            error,
            status: None,
        }
    }
}

impl IntoResponse for Failure {
    /// Carries the problem to [`render`], which knows the request's id.
    fn into_response(self) -> Response {
        let mut problem = Problem::from(&self.error);
        if let Some(status) = self.status {
            problem = problem.with_status(status.as_u16());
        }
        let mut response = Response::default();
        *response.status_mut() =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(Box::new(problem));
        response
    }
}

/// Writes the problem that a response carries, if it carries one.
pub(crate) fn render(response: &mut Response, request_id: &str) {
    let Some(mut problem) = response.extensions_mut().remove::<Box<Problem>>() else {
        return;
    };
    problem.request_id = Some(request_id.to_owned());
    let left_out = match problem.status {
        503 => UNAVAILABLE.admit(),
        500.. => Some(0),
        _ => None,
    };
    if let Some(left_out) = left_out {
        tracing::warn!(
            request.id = problem.request_id,
            status = problem.status,
            reason = problem.reason,
            detail = problem.detail,
            left_out,
            "call failed"
        );
    }
    metrics::counter!("dueline_http_problems_total", "reason" => problem.reason.clone())
        .increment(1);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    if matches!(problem.status, 429 | 503) {
        let ms = problem.retry_after_ms.unwrap_or(1000);
        headers.insert(
            header::RETRY_AFTER,
            HeaderValue::from(ms.div_ceil(1000).max(1)),
        );
    }
    // A problem is made of texts and numbers, which cannot fail to be written.
    *response.body_mut() = serde_json::to_vec(&problem).unwrap_or_default().into();
}
