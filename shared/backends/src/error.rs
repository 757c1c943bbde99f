//! Errors of opening, setting up and deleting stores and queues.

use dueline_store_sqlite::OpenError;

/// Why a store or queue could not be opened, set up or deleted.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The text is not a store or queue URI.
    #[error("'{uri}' is not a {what} URI; write {example}")]
    Malformed {
        /// What was given.
        uri: String,
        /// `store` or `queue`.
        what: &'static str,
        /// A valid URI.
        example: &'static str,
    },
    /// The URI asks for a SQLite database in memory.
    #[error(
        "a store needs a file: tasks in memory would be lost with the process; write sqlite:PATH, in a temporary folder \
         if the tasks need not last"
    )]
    InMemory,
    /// The scheme names no backend.
    #[error("unknown {what} scheme '{scheme}'; use one of {known}")]
    UnknownScheme {
        /// `store` or `queue`.
        what: &'static str,
        /// What was given.
        scheme: String,
        /// What would work.
        known: String,
    },
    /// The backend is not part of this build.
    #[error("this program was built without {scheme}:; build it with the feature 'aws'")]
    NotBuilt {
        /// What was given.
        scheme: String,
    },
    /// The backend has no such option.
    #[error("unknown option '{option}' in '{uri}'; known options are {known}")]
    UnknownOption {
        /// The URI.
        uri: String,
        /// The option.
        option: String,
        /// What would work.
        known: &'static str,
    },
    /// The value of the option is invalid.
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
    /// A queue cannot be created, changed or deleted.
    #[error("cannot set up the queues")]
    Queue(#[source] dueline_ports::QueueError),
    /// The jobs cannot be read.
    #[error("cannot read the jobs")]
    Store(#[source] dueline_ports::StoreError),
    /// The table exists, but was to be created.
    #[error("table '{what}' already exists; name a new table, which is created and then deleted")]
    Exists {
        /// The table.
        what: String,
    },
}

/// The kind of a [`BackendError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Another process uses the store or table.
    InUse,
    /// The table does not exist.
    Missing,
    /// No permission, or no credentials.
    Denied,
    /// The service does not answer.
    Unreachable,
    /// The settings, or the existing resources, are wrong.
    Wrong,
}

impl BackendError {
    /// The kind of a [`BackendError`].
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

/// The messages of an error and all its causes, joined by `: `.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
