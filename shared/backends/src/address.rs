//! Parses store and queue URIs. Nothing is opened.

use std::path::PathBuf;

use dueline_store_sqlite::{Durability, SqliteOptions};

use crate::{
    BackendError, QUEUE_SCHEMES, STORE_SCHEMES,
    uri::{Uri, wrong_value},
};

/// The kind of a store and its options.
#[derive(Clone, Debug)]
pub enum StoreAddress {
    /// One SQLite file.
    Sqlite(SqliteOptions),
    /// One DynamoDB table.
    #[cfg(feature = "aws")]
    DynamoDb(dueline_store_dynamodb::DynamoOptions),
}

/// The kind of a queue and its options.
#[derive(Clone, Debug)]
pub enum QueueAddress {
    /// A queue inside this process.
    Local,
    /// SQS queues with a common prefix.
    #[cfg(feature = "aws")]
    Sqs(dueline_queue_sqs::SqsOptions),
}

impl StoreAddress {
    /// Parses a URI: `sqlite:PATH?durability=&max_pages=`, or
    /// `dynamodb://TABLE?region=&endpoint=&profile=&slots=&timeout_ms=&connect_timeout_ms=`.
    pub fn parse(uri: &str) -> Result<Self, BackendError> {
        let malformed = |example| BackendError::Malformed {
            uri: uri.to_owned(),
            what: "store",
            example,
        };
        let sqlite_example = "sqlite:///path/to/file.db";
        let parsed = Uri::parse(uri).ok_or_else(|| malformed(sqlite_example))?;
        match parsed.scheme {
            "sqlite" if parsed.path.is_empty() => Err(malformed(sqlite_example)),
            // SQLite's name for a database in memory. It has never been one here: the path is made absolute, so it named
            // a file of this name, which its user would not expect to find or to be durable.
            "sqlite" if parsed.path == ":memory:" => Err(BackendError::InMemory),
            "sqlite" => sqlite(parsed).map(Self::Sqlite),
            #[cfg(feature = "aws")]
            "dynamodb" if parsed.path.is_empty() => Err(malformed("dynamodb://TABLE")),
            #[cfg(feature = "aws")]
            "dynamodb" => super::aws::dynamodb(parsed).map(Self::DynamoDb),
            #[cfg(not(feature = "aws"))]
            "dynamodb" => Err(not_built(parsed.scheme)),
            scheme => Err(unknown_scheme("store", scheme, STORE_SCHEMES)),
        }
    }

    /// Whether other processes may work on the same store.
    pub const fn is_shared(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            #[cfg(feature = "aws")]
            Self::DynamoDb(_) => true,
        }
    }
}

impl QueueAddress {
    /// Parses a URI: `local:`, or
    /// `sqs://[PREFIX]?region=&endpoint=&profile=&visibility_timeout_s=&priority_queues=&timeout_ms=&connect_timeout_ms=`.
    pub fn parse(uri: &str) -> Result<Self, BackendError> {
        let malformed = || BackendError::Malformed {
            uri: uri.to_owned(),
            what: "queue",
            example: "local:",
        };
        let parsed = Uri::parse(uri).ok_or_else(malformed)?;
        match parsed.scheme {
            "local" if uri == "local:" => Ok(Self::Local),
            "local" => Err(malformed()),
            #[cfg(feature = "aws")]
            "sqs" => super::aws::sqs(parsed).map(Self::Sqs),
            #[cfg(not(feature = "aws"))]
            "sqs" => Err(not_built(parsed.scheme)),
            scheme => Err(unknown_scheme("queue", scheme, QUEUE_SCHEMES)),
        }
    }

    /// Whether other processes may send to and receive from the same queues.
    pub const fn is_shared(&self) -> bool {
        match self {
            Self::Local => false,
            #[cfg(feature = "aws")]
            Self::Sqs(_) => true,
        }
    }
}

fn sqlite(mut uri: Uri<'_>) -> Result<SqliteOptions, BackendError> {
    let mut options = SqliteOptions::at(PathBuf::from(uri.path));
    match uri.option("durability") {
        None => {}
        Some("full") => options.durability = Durability::Full,
        Some("normal") => options.durability = Durability::Normal,
        Some(other) => return Err(wrong_value("durability", other, "full or normal")),
    }
    if let Some(pages) = uri.parsed("max_pages", "a whole number")? {
        options.pages_max = Some(pages);
    }
    uri.end("durability, max_pages")?;
    Ok(options)
}

#[cfg(not(feature = "aws"))]
fn not_built(scheme: &str) -> BackendError {
    BackendError::NotBuilt {
        scheme: scheme.to_owned(),
    }
}

fn unknown_scheme(what: &'static str, scheme: &str, known: &[&str]) -> BackendError {
    BackendError::UnknownScheme {
        what,
        scheme: scheme.to_owned(),
        known: known.join(", "),
    }
}
