//! Serves gRPC as its protocol defines it, and nothing that merely resembles it.

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};

use crate::{ApiError, ErrorKind, ErrorReason, v1::Problem};

const GRPC: &str = "application/grpc";

/// Refuses requests that are not HTTP/2 with a content type of gRPC. Browsers cannot send that content type to another
/// site without asking first, and they are the only ones to send gRPC frames as `text/plain`.
pub(super) async fn middleware(request: Request, next: Next) -> Response {
    if request.version() != Version::HTTP_2 {
        let message = "gRPC needs HTTP/2; REST under /v1 answers HTTP/1.1";
        return refuse(StatusCode::BAD_REQUEST, ErrorReason::Http2Required, message);
    }
    if !is_grpc_request(request.headers()) {
        let message = "gRPC needs a content type of application/grpc";
        return refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorReason::UnsupportedMediaType,
            message,
        );
    }
    let response = next.run(request).await;
    match is_undecodable(&response) {
        true => {
            let message = "the bytes of the call are no message of its type";
            let error = ApiError::new(ErrorKind::Invalid, ErrorReason::MalformedMessage, message);
            super::error_response(error).into_response()
        }
        false => response,
    }
}

/// Whether the framework could not decode the request. It reports that as a fault of the server, with a text as the only
/// mark.
fn is_undecodable(response: &Response) -> bool {
    let header = |name| response.headers().get(name).map(HeaderValue::as_bytes);
    header("grpc-status") == Some(b"13".as_slice())
        && header("grpc-message").is_some_and(|text| text.starts_with(b"failed%20to%20decode%20"))
}

/// Whether the content type of a request is one of gRPC.
pub(super) fn is_grpc_request(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(is_grpc)
}

/// `application/grpc`, alone or with the format of its messages, as in `application/grpc+proto`.
fn is_grpc(content_type: &HeaderValue) -> bool {
    let text = content_type.to_str().unwrap_or_default();
    text.get(..GRPC.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
        && matches!(text.as_bytes().get(GRPC.len()), None | Some(b'+' | b';'))
}

fn refuse(status: StatusCode, reason: ErrorReason, message: &str) -> Response {
    let error = ApiError::new(ErrorKind::Invalid, reason, message);
    let problem = Problem::from(&error).with_status(status.as_u16());
    // A problem is made of texts and numbers, which cannot fail to be written.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, content_type, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_13_only_content_types_of_grpc_are_grpc() {
        for good in [
            "application/grpc",
            "application/grpc+proto",
            "Application/GRPC; charset=utf-8",
        ] {
            assert!(is_grpc(&HeaderValue::from_static(good)), "{good}");
        }
        for bad in [
            "",
            "text/plain",
            "application/grpc-web",
            "application/grpcx",
            "text/plain; application/grpc",
        ] {
            assert!(!is_grpc(&HeaderValue::from_static(bad)), "{bad}");
        }
    }
}
