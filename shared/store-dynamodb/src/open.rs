//! Opening a table: is it there, is it ours, can this program use it.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use dueline_aws::{AwsSettings, Class, Connection, Failure, Meter, SetupError};

use crate::{
    calls::Table,
    schema,
    setup::{Found, Site},
    store::{DynamoStore, Inner},
};

/// How to open a table.
#[derive(Clone, Debug)]
pub struct DynamoOptions {
    /// The table.
    pub table: String,
    /// Region, endpoint, credentials, time limits.
    pub aws: AwsSettings,
    /// Partitions over which the tasks of each job are spread, for a table that is to be made. A table that exists
    /// keeps what it was made with.
    pub slots: u16,
    /// How long job definitions are taken for current. Every process sees a change within twice this time.
    pub definitions_ttl: Duration,
    /// How often a due partition is looked at that has been empty for half a minute.
    pub idle_poll: Duration,
}

impl DynamoOptions {
    /// Slots of a new table: each takes about a thousand writes a second.
    pub const SLOTS: u16 = 16;

    /// A table, with everything else at its default.
    pub fn of(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            aws: AwsSettings::default(),
            slots: Self::SLOTS,
            definitions_ttl: Duration::from_secs(1),
            idle_poll: Duration::from_secs(2),
        }
    }
}

/// Why a table was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The settings make no client.
    #[error(transparent)]
    Settings(#[from] SetupError),
    /// There is no such table.
    #[error("table '{table}' does not exist in {place}; make it with 'dueline setup'")]
    Missing {
        /// The table.
        table: String,
        /// Region or endpoint.
        place: String,
    },
    /// The table is being made or deleted.
    #[error("table '{table}' is {status}; wait until it is active")]
    NotActive {
        /// The table.
        table: String,
        /// Its state, in DynamoDB's word.
        status: String,
    },
    /// The table has other keys.
    #[error("table '{table}' is not a dueline store: its key is {found}")]
    ForeignKey {
        /// The table.
        table: String,
        /// What it has.
        found: String,
    },
    /// The index is missing or has other keys.
    #[error("table '{table}' lacks the index '{index}'{detail}; 'dueline setup' adds it")]
    NoIndex {
        /// The table.
        table: String,
        /// The index.
        index: &'static str,
        /// What is wrong with it, if it is there.
        detail: String,
    },
    /// The table does not say what it is.
    #[error(
        "table '{table}' was not set up, or belongs to another program; 'dueline setup' finishes it if it is empty"
    )]
    NotSetUp {
        /// The table.
        table: String,
    },
    /// The table belongs to another program.
    #[error("table '{table}' belongs to '{app}'")]
    Foreign {
        /// The table.
        table: String,
        /// What its meta item says.
        app: String,
    },
    /// The table was written by a newer program.
    #[error(
        "table '{table}' has schema version {found}, this program knows up to {known}; use a newer dueline"
    )]
    Newer {
        /// The table.
        table: String,
        /// Version found.
        found: i64,
        /// Version known.
        known: u32,
    },
    /// The credentials do not allow it.
    #[error("no permission for table '{table}': {why}")]
    Denied {
        /// The table.
        table: String,
        /// DynamoDB's words.
        why: String,
    },
    /// DynamoDB cannot be reached, or does not answer.
    #[error("DynamoDB cannot be reached at {place}: {why}")]
    Unreachable {
        /// Region or endpoint.
        place: String,
        /// The last cause.
        why: String,
    },
    /// DynamoDB refused.
    #[error("DynamoDB refused '{action}': {why}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// DynamoDB's words.
        why: String,
    },
}

impl OpenError {
    pub(crate) fn of(failure: Failure, action: &'static str, table: &str, place: &str) -> Self {
        let (table, place) = (table.to_owned(), place.to_owned());
        let why = failure.message.to_string();
        match failure.class {
            Class::Missing => Self::Missing { table, place },
            Class::Denied => Self::Denied { table, why },
            Class::NotSent | Class::Unknown | Class::Throttled => Self::Unreachable { place, why },
            _ => Self::Refused { action, why },
        }
    }
}

impl DynamoStore {
    /// Opens a table that is set up, or says what is wrong with it.
    pub async fn open(options: DynamoOptions, meter: Meter) -> Result<Self, OpenError> {
        let site = Site::of(&options.aws).await?;
        Self::open_at(site, options, meter).await
    }

    /// Opens a table through a client that the caller has. It is shared, and never closed.
    pub async fn from_client(client: Client, table: &str, meter: Meter) -> Result<Self, OpenError> {
        Self::open_at(client.into(), DynamoOptions::of(table), meter).await
    }

    /// As [`DynamoStore::open`] with a client that is there already; the options for making one do not matter.
    pub async fn open_at(
        site: Site,
        options: DynamoOptions,
        meter: Meter,
    ) -> Result<Self, OpenError> {
        let found = site.inspect(&options.table).await?;
        let Site { client, place } = site;
        let slots = check(&options.table, &place, &found)?;
        if found.ttl == Some(false) {
            tracing::warn!(
                table = options.table,
                "expiry is off: finished tasks are only removed by the pruner, which costs writes"
            );
        }
        let name = options.table.as_str().into();
        let table = Table {
            client,
            name,
            meter,
            connection: Connection::default(),
        };
        let inner = Inner::new(table, slots, options);
        Ok(Self { inner })
    }
}

/// Whether a table can be used; answers its slots.
fn check(table: &str, place: &str, found: &Found) -> Result<u16, OpenError> {
    let table = table.to_owned();
    let Some(shape) = &found.table else {
        let place = place.to_owned();
        return Err(OpenError::Missing { table, place });
    };
    if !shape.is_active() {
        let status = shape.status.to_lowercase();
        return Err(OpenError::NotActive { table, status });
    }
    if !shape.has_our_key() {
        let found = shape.key.clone();
        return Err(OpenError::ForeignKey { table, found });
    }
    if let Some(detail) = shape.index_flaw() {
        let index = schema::DUE_INDEX;
        return Err(OpenError::NoIndex {
            table,
            index,
            detail,
        });
    }
    let Some(meta) = &found.meta else {
        return Err(OpenError::NotSetUp { table });
    };
    if meta.app != schema::APP {
        let app = meta.app.clone();
        return Err(OpenError::Foreign { table, app });
    }
    if meta.version > i64::from(schema::VERSION) {
        let (found, known) = (meta.version, schema::VERSION);
        return Err(OpenError::Newer {
            table,
            found,
            known,
        });
    }
    Ok(meta.slots)
}
