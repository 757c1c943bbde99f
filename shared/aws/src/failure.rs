//! Failures of calls, classified by what the caller can do.

use std::{error::Error, sync::Arc};

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

/// The meaning of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Too many calls or too little capacity. The call had no effect; retry later.
    Throttled,
    /// The service was not reached. The call had no effect; retry later.
    NotSent,
    /// No response, or an inconclusive one. The call may have taken effect; read the state before drawing conclusions.
    Unknown,
    /// The condition of a write did not hold.
    ConditionFailed,
    /// A transaction conflicted with another one, or its conditions failed; the error itself has the reasons.
    Cancelled,
    /// The table, index or queue does not exist, no longer exists, or does not exist yet.
    Missing,
    /// The credentials are wrong, expired, or do not allow the call.
    Denied,
    /// A resource of that name exists or is being changed.
    InUse,
    /// The call is invalid and cannot succeed.
    Invalid,
}

impl Class {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Throttled | Self::NotSent | Self::Unknown)
    }

    /// The class of an error code in a batch entry; `status` is the HTTP status that corresponds to it.
    pub fn of_code(code: &str, status: u16) -> Self {
        of_code(code, status)
    }
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The meaning of the failure.
    pub class: Class,
    /// The service's code and message, or the innermost cause.
    pub message: Arc<str>,
}

/// Classifies an error. The class of an unknown code follows from the HTTP status: a call with 5xx may have taken
/// effect, any other cannot succeed.
pub fn classify<E, R>(error: &SdkError<E, R>) -> Failure
where
    E: ProvideErrorMetadata + Error + 'static,
    R: HttpStatus + std::fmt::Debug,
{
    let class = match error {
        SdkError::ConstructionFailure(_) => Class::Invalid,
        SdkError::DispatchFailure(failure) if is_credentials(failure) => Class::Denied,
        SdkError::DispatchFailure(failure) if never_connected(failure) => Class::NotSent,
        SdkError::ServiceError(service) => {
            let status = service.raw().status_code();
            of_code(service.err().code().unwrap_or_default(), status)
        }
        _ => Class::Unknown,
    };
    Failure {
        class,
        message: message(error).into(),
    }
}

/// The status of a raw response.
pub trait HttpStatus {
    /// The status code.
    fn status_code(&self) -> u16;
}

impl HttpStatus for aws_smithy_runtime_api::client::orchestrator::HttpResponse {
    fn status_code(&self) -> u16 {
        self.status().as_u16()
    }
}

fn of_code(code: &str, status: u16) -> Class {
    // Some services put a namespace before the code.
    let code = code.rsplit(['#', '.']).next().unwrap_or(code);
    match code {
        "ThrottlingException"
        | "Throttling"
        | "ThrottledException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "LimitExceededException"
        | "OverLimit"
        | "KmsThrottled"
        | "TooManyRequestsException"
        | "SlowDown"
        | "TransactionConflictException"
        | "QueueDeletedRecently" => Class::Throttled,
        "ConditionalCheckFailedException" => Class::ConditionFailed,
        "TransactionCanceledException" => Class::Cancelled,
        "TransactionInProgressException" => Class::Unknown,
        "ResourceNotFoundException"
        | "TableNotFoundException"
        | "QueueDoesNotExist"
        | "NonExistentQueue" => Class::Missing,
        "ResourceInUseException"
        | "TableInUseException"
        | "QueueAlreadyExists"
        | "QueueNameExists" => Class::InUse,
        "AccessDeniedException"
        | "AccessDenied"
        | "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "IncompleteSignature"
        | "MissingAuthenticationTokenException"
        | "MissingAuthenticationToken"
        | "ExpiredTokenException"
        | "ExpiredToken"
        | "RequestExpired"
        | "NotAuthorized"
        | "InvalidSecurity"
        | "OptInRequired"
        | "KmsAccessDenied" => Class::Denied,
        "InternalServerError"
        | "InternalServerErrorException"
        | "InternalFailure"
        | "InternalError"
        | "ServiceUnavailable"
        | "ServiceUnavailableException" => Class::Unknown,
        _ if status == 429 => Class::Throttled,
        _ if status >= 500 => Class::Unknown,
        _ if status == 403 => Class::Denied,
        _ => Class::Invalid,
    }
}

fn never_connected(failure: &aws_smithy_runtime_api::client::result::DispatchFailure) -> bool {
    let Some(error) = failure.as_connector_error() else {
        return false;
    };
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        cause = error.source();
    }
    false
}

fn is_credentials(failure: &aws_smithy_runtime_api::client::result::DispatchFailure) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = match failure.as_connector_error() {
        Some(error) => Some(error),
        None => return false,
    };
    while let Some(error) = cause {
        if error.is::<aws_credential_types::provider::error::CredentialsError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn message<E, R>(error: &SdkError<E, R>) -> String
where
    E: ProvideErrorMetadata + Error + 'static,
    R: std::fmt::Debug,
{
    if let SdkError::ServiceError(service) = error {
        let (code, text) = (service.err().code(), service.err().message());
        return match (code, text) {
            (Some(code), Some(text)) => format!("{code}: {text}"),
            (Some(code), None) => code.to_owned(),
            (None, Some(text)) => text.to_owned(),
            (None, None) => service.err().to_string(),
        };
    }
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let (outer, inner) = (error.to_string(), cause.to_string());
    if outer == inner {
        outer
    } else {
        format!("{outer}: {inner}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_class() {
        for (code, status, class) in [
            (
                "ConditionalCheckFailedException",
                400,
                Class::ConditionFailed,
            ),
            (
                "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException",
                400,
                Class::Missing,
            ),
            (
                "AWS.SimpleQueueService.NonExistentQueue",
                400,
                Class::Missing,
            ),
            (
                "AWS.SimpleQueueService.QueueDeletedRecently",
                400,
                Class::Throttled,
            ),
            (
                "ProvisionedThroughputExceededException",
                400,
                Class::Throttled,
            ),
            ("TransactionConflictException", 400, Class::Throttled),
            ("TransactionCanceledException", 400, Class::Cancelled),
            ("InternalServerError", 500, Class::Unknown),
            ("SomethingNew", 503, Class::Unknown),
            ("SomethingNew", 429, Class::Throttled),
            ("SomethingNew", 400, Class::Invalid),
            ("ValidationException", 400, Class::Invalid),
            (
                "ItemCollectionSizeLimitExceededException",
                400,
                Class::Invalid,
            ),
            ("ExpiredTokenException", 400, Class::Denied),
            ("AccessDeniedException", 400, Class::Denied),
            ("", 403, Class::Denied),
            ("ResourceInUseException", 400, Class::InUse),
        ] {
            assert_eq!(of_code(code, status), class, "{code}");
        }
    }
}
