//! Why a store or queue was not opened.

use dueline_store_sqlite::OpenError;

/// Why a store or queue was not opened.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The text is no URI of ours.
    #[error("'{uri}' is not a {what} URI; write {example}")]
    Malformed {
        /// What was given.
        uri: String,
        /// `store` or `queue`.
        what: &'static str,
        /// What one looks like.
        example: &'static str,
    },
    /// No such kind of backend.
    #[error("unknown {what} '{scheme}'; known are {known}")]
    UnknownScheme {
        /// `store` or `queue`.
        what: &'static str,
        /// What was given.
        scheme: String,
        /// What would work.
        known: String,
    },
    /// The backend exists, but not in this build.
    #[error("this program was built without {scheme}:; build it with the feature 'aws'")]
    NotBuilt {
        /// What was given.
        scheme: String,
    },
    /// The backend has no such option.
    #[error("unknown option '{option}' in '{uri}'; known are {known}")]
    UnknownOption {
        /// The URI.
        uri: String,
        /// The option.
        option: String,
        /// What would work.
        known: &'static str,
    },
    /// The option does not take this value.
    #[error("option '{option}' takes {expected}, not '{value}'")]
    OptionValue {
        /// The option.
        option: &'static str,
        /// What was given.
        value: String,
        /// What would work.
        expected: &'static str,
    },
    /// The SQLite file cannot be used.
    #[error("cannot open the store")]
    Sqlite(#[source] OpenError),
    /// The DynamoDB table cannot be used.
    #[cfg(feature = "aws")]
    #[error("cannot open the store")]
    DynamoDb(#[source] dueline_store_dynamodb::OpenError),
    /// SQS cannot be used.
    #[cfg(feature = "aws")]
    #[error("cannot open the queue")]
    Sqs(#[source] dueline_queue_sqs::OpenError),
    /// A queue cannot be made, changed or removed.
    #[error("cannot set up the queues")]
    Queue(#[source] dueline_ports::QueueError),
    /// The jobs cannot be read.
    #[error("cannot read the jobs")]
    Store(#[source] dueline_ports::StoreError),
    /// It is there already, and was to be made anew.
    #[error("table '{what}' exists already; name one that does not, it is made and removed")]
    Exists {
        /// The table.
        what: String,
    },
}

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Another process has it.
    InUse,
    /// It does not exist.
    Missing,
    /// No permission, or no credentials.
    Denied,
    /// It does not answer.
    Unreachable,
    /// What was asked for, or what is there, is not as it must be.
    Wrong,
}

impl BackendError {
    /// What kind of thing is wrong.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Sqlite(OpenError::InUse { .. }) => Fault::InUse,
            #[cfg(feature = "aws")]
            Self::DynamoDb(error) => super::aws::store_fault(error),
            #[cfg(feature = "aws")]
            Self::Sqs(error) => super::aws::queue_fault(error),
            Self::Exists { .. } => Fault::InUse,
            Self::Queue(error) if error.is_retryable() => Fault::Unreachable,
            Self::Store(error) if error.is_retryable() => Fault::Unreachable,
            _ => Fault::Wrong,
        }
    }
}
