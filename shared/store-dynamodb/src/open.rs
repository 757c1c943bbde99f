//! Opening a table: checks that it exists, that it is a Dueline store, and that this program supports its version.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use dueline_aws::{AwsSettings, Class, Connection, Failure, Meter, SetupError};

use crate::{
    calls::MeteredTable,
    schema,
    setup::{SetupClient, TableState},
    store::DynamoStore,
};

/// How to open a table.
#[derive(Clone, Debug)]
pub struct DynamoOptions {
    /// The table.
    pub table: String,
    /// Region, endpoint, credentials, time limits.
    pub aws: AwsSettings,
    /// Partitions over which the tasks of each job are spread, for a new table. An existing table keeps its number.
    pub slots: u16,
    /// How long job definitions are cached. Every process uses a change within twice this time.
    pub definitions_ttl: Duration,
    /// How often a partition of the due index is scanned that has been empty for half a minute.
    pub idle_poll: Duration,
}

impl DynamoOptions {
    /// Default number of slots of a new table. Each slot takes about a thousand writes a second.
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
    /// No client can be made from the settings.
    #[error(transparent)]
    Settings(#[from] SetupError),
    /// There is no such table.
    #[error("table '{table}' does not exist in {endpoint}; create it with 'dueline setup'")]
    Missing {
        /// The table.
        table: String,
        /// Endpoint or region.
        endpoint: String,
    },
    /// The table is being created or deleted.
    #[error("table '{table}' is {status}; wait until it is active")]
    NotActive {
        /// The table.
        table: String,
        /// Its status, as DynamoDB names it.
        status: String,
    },
    /// The table has a different key.
    #[error("table '{table}' is not a dueline store: its key is {found}")]
    ForeignKey {
        /// The table.
        table: String,
        /// The key of the table.
        found: String,
    },
    /// The index is missing or has a different key.
    #[error("table '{table}' lacks the index '{index}'{detail}; 'dueline setup' adds it")]
    NoIndex {
        /// The table.
        table: String,
        /// The index.
        index: &'static str,
        /// What is wrong with it, if it exists.
        detail: String,
    },
    /// The table has no meta item.
    #[error(
        "table '{table}' was not set up completely, or belongs to another program; 'dueline setup' completes it if it \
         is empty"
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
        /// The program that its meta item names.
        app: String,
    },
    /// The table was written by a newer program.
    #[error(
        "table '{table}' has schema version {found}, this program supports up to {known}; use a newer dueline"
    )]
    Newer {
        /// The table.
        table: String,
        /// The version of the table.
        found: i64,
        /// The newest version that this program supports.
        known: u32,
    },
    /// The credentials do not permit the call.
    #[error("no permission for table '{table}': {why}")]
    Denied {
        /// The table.
        table: String,
        /// DynamoDB's message.
        why: String,
    },
    /// DynamoDB cannot be reached, or does not answer.
    #[error("DynamoDB cannot be reached at {endpoint}: {why}")]
    Unreachable {
        /// Endpoint or region.
        endpoint: String,
        /// The last cause.
        why: String,
    },
    /// DynamoDB refused a call.
    #[error("DynamoDB refused '{action}': {why}")]
    Refused {
        /// The call.
        action: &'static str,
        /// DynamoDB's message.
        why: String,
    },
}

impl OpenError {
    pub(crate) fn of(failure: Failure, action: &'static str, table: &str, endpoint: &str) -> Self {
        let (table, endpoint) = (table.to_owned(), endpoint.to_owned());
        let why = failure.message.to_string();
        match failure.class {
            Class::Missing => Self::Missing { table, endpoint },
            Class::Denied => Self::Denied { table, why },
            Class::NotSent | Class::Unknown | Class::Throttled => {
                Self::Unreachable { endpoint, why }
            }
            _ => Self::Refused { action, why },
        }
    }
}

impl DynamoStore {
    /// Opens a table that was set up. The error says what is wrong with it.
    pub async fn open(options: DynamoOptions, meter: Meter) -> Result<Self, OpenError> {
        let setup = SetupClient::of(&options.aws).await?;
        Self::open_at(setup, options, meter).await
    }

    /// Opens a table through an existing client, which is shared and never closed.
    pub async fn from_client(client: Client, table: &str, meter: Meter) -> Result<Self, OpenError> {
        Self::open_at(client.into(), DynamoOptions::of(table), meter).await
    }

    /// As [`DynamoStore::open`], with an existing client; `options.aws` is not used.
    pub async fn open_at(
        setup: SetupClient,
        options: DynamoOptions,
        meter: Meter,
    ) -> Result<Self, OpenError> {
        let found = setup.inspect(&options.table).await?;
        let SetupClient { client, endpoint } = setup;
        let slots = check(&options.table, &endpoint, &found)?;
        if found.ttl == Some(false) {
            tracing::warn!(
                table = options.table,
                "expiry is off; finished tasks are deleted only by the pruner, which costs write units"
            );
        }
        let name = options.table.as_str().into();
        let table = MeteredTable {
            client,
            name,
            meter,
            connection: Connection::default(),
        };
        Ok(Self::new(table, slots, options))
    }
}

/// Checks whether a table can be used. Answers its slots.
fn check(table: &str, endpoint: &str, found: &TableState) -> Result<u16, OpenError> {
    let table = table.to_owned();
    let Some(shape) = &found.table else {
        let endpoint = endpoint.to_owned();
        return Err(OpenError::Missing { table, endpoint });
    };
    if !shape.is_active() {
        let status = shape.status.to_lowercase();
        return Err(OpenError::NotActive { table, status });
    }
    if !shape.has_dueline_key() {
        let found = shape.key.clone();
        return Err(OpenError::ForeignKey { table, found });
    }
    if let Some(detail) = shape.index_problem() {
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
