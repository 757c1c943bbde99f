//! What SQLite's errors mean to a caller.

use std::sync::Arc;

use dueline_ports::StoreError;
use rusqlite::ErrorCode;

/// How a failed statement affects the transaction it was part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No room: everything in this transaction is undone, later ones may work.
    Full(Arc<str>),
    /// Somebody else, a shell or a backup, holds the file: nothing happened, and later transactions may work.
    Busy(Arc<str>),
    /// A value that the tables do not take: nothing happened, and the same call will not work later either.
    Refused(Arc<str>),
    /// The file cannot be trusted to be written any more; the process should end.
    Broken(Arc<str>),
}

impl Failure {
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

/// The store is shutting down.
pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable {
        message: Arc::from("store is closed"),
        outcome_unknown: true,
    }
}
