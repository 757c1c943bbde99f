//! SQLite's errors as errors of the store.

use std::sync::Arc;

use dueline_ports::StoreError;
use rusqlite::ErrorCode;

/// Why a transaction failed, and what that means for later ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransactionFailure {
    /// The disk or the file is full. The transaction was rolled back; later ones may succeed.
    Full(Arc<str>),
    /// Another program, such as a shell or a backup, has locked the file. Nothing was written; later transactions may
    /// succeed.
    Busy(Arc<str>),
    /// A value violates a constraint of the tables. Nothing was written; the same call will never succeed.
    Refused(Arc<str>),
    /// The state of the file is unknown, so it must not be written any more; the process should end.
    Broken(Arc<str>),
}

impl TransactionFailure {
    pub(crate) fn of(error: &rusqlite::Error) -> Self {
        let text: Arc<str> = Arc::from(error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(text),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(text),
            Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
                Self::Refused(text)
            }
            _ => Self::Broken(text),
        }
    }

    pub(crate) fn to_store(&self) -> StoreError {
        match self {
            Self::Full(text) => StoreError::Full(text.clone()),
            Self::Busy(text) => StoreError::Unavailable {
                message: text.clone(),
                outcome_unknown: false,
            },
            Self::Refused(text) => StoreError::Corrupt(text.clone()),
            Self::Broken(text) => StoreError::Unavailable {
                message: text.clone(),
                outcome_unknown: true,
            },
        }
    }
}

/// The error of a failed read.
pub(crate) fn read_error(error: &rusqlite::Error) -> StoreError {
    let message = Arc::from(error.to_string());
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => StoreError::Corrupt(message),
        _ => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Corrupt(message)
            }
            _ => StoreError::Unavailable {
                message,
                outcome_unknown: false,
            },
        },
    }
}

/// The error of a call while the store is shutting down.
pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable {
        message: Arc::from("store is closed"),
        outcome_unknown: true,
    }
}
