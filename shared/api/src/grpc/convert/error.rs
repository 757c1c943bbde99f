//! Errors as messages, and as the status of a call.

use std::time::Duration;

use bytes::Bytes;
use dueline_domain::{WorkerId, limits, truncate_text};
use prost::Message as _;
use tonic::Code;

use super::{enums, field};
use crate::{ApiError, ErrorKind, ErrorReason, grpc::proto};

/// Most bytes of the text that travels in the clear: headers are small, and the whole text is in the details.
const STATUS_TEXT_BYTES_MAX: usize = 512;

/// `google.rpc.Status`, which clients of every language know how to read.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<RpcAny>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcAny {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

const TYPE_URL: &str = "type.googleapis.com/dueline.v1.ApiError";

impl From<&ApiError> for proto::ApiError {
    fn from(error: &ApiError) -> Self {
        let max = limits().error_bytes_max;
        let short = limits().text_bytes_max;
        Self {
            kind: proto::ErrorKind::from(error.kind()).into(),
            reason: truncate_text(error.reason().name(), short).to_owned(),
            message: truncate_text(error.message(), max).to_owned(),
            field: error
                .field()
                .map(|field| truncate_text(field, short).to_owned()),
            state: error.state().map(enums::state_number),
            owner: error.owner().map(ToString::to_string),
            retry_after_ms: error.retry_after().map(field::millis),
        }
    }
}

impl From<ApiError> for proto::ApiError {
    fn from(error: ApiError) -> Self {
        Self::from(&error)
    }
}

/// An error of a newer server may hold a kind or state that this version does not know. It stays an error all the
/// same: with the kind that its reader can do nothing about, and without the state.
impl From<proto::ApiError> for ApiError {
    fn from(error: proto::ApiError) -> Self {
        let kind = enums::error_kind("kind", error.kind).unwrap_or(ErrorKind::Internal);
        let mut read = Self::new(kind, ErrorReason::from_name(&error.reason), error.message)
            .with_owner(error.owner.and_then(|owner| WorkerId::parse(&owner).ok()));
        if let Some(field) = error.field {
            read = read.with_field(field);
        }
        if let Some(state) = error
            .state
            .and_then(|number| enums::state_kind("state", number).ok())
        {
            read = read.with_state(state);
        }
        if let Some(after_ms) = error.retry_after_ms {
            read = read.with_retry_after(Duration::from_millis(after_ms));
        }
        read
    }
}

/// The error of a whole call.
pub(crate) fn error_to_status(error: &ApiError) -> tonic::Status {
    let code = code_of(error.kind());
    let message = truncate_text(error.message(), STATUS_TEXT_BYTES_MAX);
    let details = RpcStatus {
        code: code.into(),
        message: message.to_owned(),
        details: vec![RpcAny {
            type_url: TYPE_URL.to_owned(),
            value: proto::ApiError::from(error).encode_to_vec().into(),
        }],
    };
    tonic::Status::with_details(code, message, details.encode_to_vec().into())
}

impl From<ApiError> for tonic::Status {
    fn from(error: ApiError) -> Self {
        error_to_status(&error)
    }
}

/// The error that a server put into the details of a status, for users of the generated clients; `None` when the
/// status is of another make.
pub fn error_in_status(status: &tonic::Status) -> Option<ApiError> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let ours = details.into_iter().find(|any| any.type_url == TYPE_URL)?;
    proto::ApiError::decode(ours.value).ok().map(ApiError::from)
}

/// The error for an unexpected answer: the other side has another version, or is broken. `error` says
/// which field it was, but it is no fault of the caller's.
pub(crate) fn bad_answer(error: &ApiError) -> ApiError {
    let text = format!("the server's answer makes no sense: {error}");
    ApiError::new(ErrorKind::Internal, ErrorReason::BadAnswer, text)
}

/// The code that stands for a kind.
const fn code_of(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Conflict => Code::FailedPrecondition,
        ErrorKind::TooLarge => Code::OutOfRange,
        ErrorKind::RateLimited => Code::ResourceExhausted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Deadline => Code::DeadlineExceeded,
        ErrorKind::Internal => Code::Internal,
    }
}
