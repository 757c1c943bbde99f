#![doc = include_str!("../README.md")]

mod uri;

use std::{future::Future, path::PathBuf, pin::Pin, sync::Arc};

use dueline_ports::{Store, TaskQueue};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use dueline_store_sqlite::{Durability, OpenError, SqliteOptions, SqliteStore};

use self::uri::Uri;

/// Schemes a store URI may have.
pub const STORE_SCHEMES: &[&str] = &["sqlite"];

/// Schemes a queue URI may have.
pub const QUEUE_SCHEMES: &[&str] = &["local"];

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
}

impl BackendError {
    /// Whether another process has the store, and nothing else is wrong.
    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::Sqlite(OpenError::InUse { .. }))
    }
}

/// An opened store.
pub struct OpenedStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// What an acknowledged write survives, as text for people.
    pub durability: &'static str,
    sqlite: Arc<SqliteStore>,
}

impl OpenedStore {
    /// Ready when the store has failed for good and the process should end.
    pub fn broken(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let sqlite = self.sqlite.clone();
        Box::pin(async move { sqlite.broken().await })
    }

    /// Bytes the store takes on this machine's disk.
    pub fn bytes_on_disk(&self) -> u64 {
        self.sqlite.bytes_on_disk()
    }
}

/// Opens a store. `sqlite:PATH` or `sqlite:///PATH`, with `?durability=full|normal` and `?max_pages=N`.
pub fn open_store(uri: &str) -> Result<OpenedStore, BackendError> {
    let parsed = Uri::parse(uri).ok_or_else(|| BackendError::Malformed {
        uri: uri.to_owned(),
        what: "store",
        example: "sqlite:///path/to/file.db",
    })?;
    if parsed.scheme != "sqlite" {
        return Err(unknown_scheme("store", parsed.scheme, STORE_SCHEMES));
    }
    let mut options = SqliteOptions::at(PathBuf::from(parsed.path));
    for (option, value) in &parsed.options {
        match *option {
            "durability" => options.durability = durability(value)?,
            "max_pages" => options.pages_max = Some(pages(value)?),
            _ => {
                return Err(BackendError::UnknownOption {
                    uri: uri.to_owned(),
                    option: (*option).to_owned(),
                    known: "durability, max_pages",
                });
            }
        }
    }
    let sqlite = Arc::new(SqliteStore::open(options).map_err(BackendError::Sqlite)?);
    Ok(OpenedStore {
        durability: sqlite.durability().name(),
        store: sqlite.clone(),
        sqlite,
    })
}

/// Opens a queue: `local:`.
pub fn open_queue(uri: &str) -> Result<Arc<dyn TaskQueue>, BackendError> {
    match uri.split_once(':') {
        Some(("local", "")) => Ok(LocalQueue::new(LocalQueueConfig::default())),
        Some(("local", _)) | None => Err(BackendError::Malformed {
            uri: uri.to_owned(),
            what: "queue",
            example: "local:",
        }),
        Some((scheme, _)) => Err(unknown_scheme("queue", scheme, QUEUE_SCHEMES)),
    }
}

fn unknown_scheme(what: &'static str, scheme: &str, known: &[&str]) -> BackendError {
    BackendError::UnknownScheme {
        what,
        scheme: scheme.to_owned(),
        known: known.join(", "),
    }
}

fn durability(value: &str) -> Result<Durability, BackendError> {
    match value {
        "full" => Ok(Durability::Full),
        "normal" => Ok(Durability::Normal),
        _ => Err(BackendError::OptionValue {
            option: "durability",
            value: value.to_owned(),
            expected: "full or normal",
        }),
    }
}

fn pages(value: &str) -> Result<u32, BackendError> {
    value.parse().map_err(|_| BackendError::OptionValue {
        option: "max_pages",
        value: value.to_owned(),
        expected: "a whole number",
    })
}
