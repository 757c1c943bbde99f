//! The current state of a table.

use aws_sdk_dynamodb::{
    Client,
    types::{
        ContinuousBackupsStatus, KeySchemaElement, KeyType, PointInTimeRecoveryStatus,
        TableDescription, TimeToLiveStatus,
    },
};
use dueline_aws::{Class, classify};

use super::SetupClient;
use crate::{
    attr::{get_num, get_text},
    calls::ItemKey,
    open::OpenError,
    schema,
};

/// The state of a table, or that there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableState {
    /// The table, if it exists.
    pub table: Option<TableShape>,
    /// Whether items expire by [`schema::TTL`]; `None` when that is unknown.
    pub ttl: Option<bool>,
    /// Whether point-in-time recovery is on; `None` when that is unknown.
    pub backups: Option<bool>,
    /// The meta item, if there is one.
    pub meta: Option<TableMeta>,
}

/// The description of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableShape {
    /// Its status, as DynamoDB names it.
    pub status: String,
    /// Its key, such as `pk (S), sk (B)`.
    pub key: String,
    /// The due index.
    pub index: Option<IndexShape>,
    /// Whether capacity is on demand; otherwise it is provisioned.
    pub on_demand: bool,
    /// Number of items, as of some hours ago.
    pub items: i64,
    /// Size in bytes, as of some hours ago.
    pub bytes: i64,
    /// Whether the table is protected against deletion.
    pub is_protected: bool,
}

/// The description of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexShape {
    /// Its status, as DynamoDB names it.
    pub status: String,
    /// Its key.
    pub key: String,
    /// The attributes that it projects, as DynamoDB names them.
    pub projection: String,
}

/// The meta item, which marks a table as a Dueline store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableMeta {
    /// The program to which the table belongs.
    pub app: String,
    /// The version of its schema.
    pub version: i64,
    /// Slots of each job.
    pub slots: u16,
}

/// Name of the program in the meta item.
pub(super) const APP: &str = "app";
/// Version of the schema in the meta item.
pub(super) const VERSION: &str = "v";
/// Number of slots in the meta item.
pub(super) const SLOTS: &str = "slots";

impl TableShape {
    /// Whether the table can be used.
    pub fn is_active(&self) -> bool {
        matches!(self.status.as_str(), "ACTIVE" | "UPDATING")
    }

    /// Whether the key is that of a Dueline store.
    pub fn has_dueline_key(&self) -> bool {
        self.key == format!("{} (S), {} (B)", schema::PK, schema::SK)
    }

    /// What is wrong with the due index, as the rest of a sentence; `None` if nothing is.
    pub fn index_problem(&self) -> Option<String> {
        let Some(index) = &self.index else {
            return Some(String::new());
        };
        if index.key != format!("{} (S), {} (N)", schema::DUE_KEY, schema::DUE_HINT) {
            return Some(format!(" with the right key (its key is {})", index.key));
        }
        if !matches!(index.status.as_str(), "ACTIVE" | "UPDATING") {
            return Some(format!(" yet (it is {})", index.status.to_lowercase()));
        }
        None
    }
}

impl SetupClient {
    /// Describes a table. A missing table is not an error.
    pub async fn inspect(&self, table: &str) -> Result<TableState, OpenError> {
        let client = &self.client;
        let described = Box::pin(client.describe_table().table_name(table).send()).await;
        let description = match described {
            Ok(answer) => answer.table,
            Err(failed) => {
                let failure = classify(&failed);
                if failure.class == Class::Missing {
                    return Ok(TableState::default());
                }
                return Err(self.error(failure, "DescribeTable", table));
            }
        };
        let Some(description) = description else {
            return Ok(TableState::default());
        };
        let shape = shape(&description);
        let mut found = TableState {
            ttl: ttl(client, table).await,
            backups: backups(client, table).await,
            ..TableState::default()
        };
        if shape.has_dueline_key() && shape.is_active() {
            found.meta = self.meta(table).await?;
        }
        found.table = Some(shape);
        Ok(found)
    }

    async fn meta(&self, table: &str) -> Result<Option<TableMeta>, OpenError> {
        let key = ItemKey::new(schema::META, schema::META_SCHEMA);
        let call = self
            .client
            .get_item()
            .table_name(table)
            .set_key(Some(key.item()));
        let answer = match Box::pin(call.consistent_read(true).send()).await {
            Ok(answer) => answer,
            Err(failed) => return Err(self.error(classify(&failed), "GetItem", table)),
        };
        Ok(answer.item.map(|item| TableMeta {
            app: get_text(&item, APP)
                .ok()
                .flatten()
                .unwrap_or_default()
                .to_owned(),
            version: get_num(&item, VERSION).ok().flatten().unwrap_or_default(),
            slots: get_num(&item, SLOTS)
                .ok()
                .flatten()
                .and_then(|slots| u16::try_from(slots).ok())
                .unwrap_or(1)
                .clamp(1, schema::SLOTS_MAX),
        }))
    }
}

fn shape(table: &TableDescription) -> TableShape {
    let kind = |name: &str| {
        let mut attributes = table.attribute_definitions().iter();
        let found = attributes.find(|attribute| attribute.attribute_name() == name);
        found
            .map_or("?", |attribute| attribute.attribute_type().as_str())
            .to_owned()
    };
    let key = |schema: &[KeySchemaElement]| {
        let mut schema: Vec<_> = schema.iter().collect();
        schema.sort_by_key(|element| *element.key_type() != KeyType::Hash);
        let names = schema.iter().map(|element| {
            let name = element.attribute_name();
            format!("{name} ({})", kind(name))
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let mut indexes = table.global_secondary_indexes().iter();
    let index = indexes.find(|index| index.index_name() == Some(schema::DUE_INDEX));
    let billing = table
        .billing_mode_summary()
        .and_then(|billing| billing.billing_mode());
    TableShape {
        status: table
            .table_status()
            .map_or("unknown", |status| status.as_str())
            .to_owned(),
        key: key(table.key_schema()),
        index: index.map(|index| IndexShape {
            status: index
                .index_status()
                .map_or("unknown", |status| status.as_str())
                .to_owned(),
            key: key(index.key_schema()),
            projection: index
                .projection()
                .and_then(|projection| projection.projection_type())
                .map_or("unknown", |kind| kind.as_str())
                .to_owned(),
        }),
        on_demand: billing.is_some_and(|mode| mode.as_str() == "PAY_PER_REQUEST"),
        items: table.item_count().unwrap_or_default(),
        bytes: table.table_size_bytes().unwrap_or_default(),
        is_protected: table.deletion_protection_enabled().unwrap_or_default(),
    }
}

/// Whether expiry is on; `None` when the engine does not report it, or the role does not permit the call.
async fn ttl(client: &Client, table: &str) -> Option<bool> {
    let answer = Box::pin(client.describe_time_to_live().table_name(table).send())
        .await
        .ok()?;
    let ttl = answer.time_to_live_description()?;
    let on = matches!(
        ttl.time_to_live_status()?,
        TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling
    );
    Some(on && ttl.attribute_name() == Some(schema::TTL))
}

/// Whether point-in-time recovery is on; `None` as for [`ttl`].
async fn backups(client: &Client, table: &str) -> Option<bool> {
    let call = client.describe_continuous_backups().table_name(table);
    let answer = Box::pin(call.send()).await.ok()?;
    let backups = answer.continuous_backups_description()?;
    if *backups.continuous_backups_status() != ContinuousBackupsStatus::Enabled {
        return Some(false);
    }
    let recovery = backups.point_in_time_recovery_description()?;
    Some(*recovery.point_in_time_recovery_status()? == PointInTimeRecoveryStatus::Enabled)
}
