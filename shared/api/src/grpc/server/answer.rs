//! Answers that are made outside of a service.

use http::{HeaderMap, Response};

use super::transport;
use crate::ApiError;

/// Whether a request says that it is gRPC.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    transport::is_grpc_request(headers)
}

/// The answer to a gRPC request that failed before a service saw it.
pub fn error_response(error: ApiError) -> Response<axum::body::Body> {
    tonic::Status::from(error).into_http()
}
