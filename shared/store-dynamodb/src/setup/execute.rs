//! Execution of a plan, and deletion of a table.

use aws_sdk_dynamodb::{
    Client,
    error::BuildError,
    types::{
        AttributeDefinition, BillingMode, CreateGlobalSecondaryIndexAction, GlobalSecondaryIndex,
        GlobalSecondaryIndexUpdate, KeySchemaElement, KeyType, PointInTimeRecoverySpecification,
        Projection, ProjectionType, ScalarAttributeType as Kind, TimeToLiveSpecification,
    },
};
use dueline_aws::{Class, Failure, classify};
use tokio::time::{Duration, Instant, sleep};

use super::{
    SetupClient, SetupStep, SkippedStep, TableShape, TableState,
    inspect::{APP, SLOTS, VERSION},
};
use crate::{
    attr::{num, text},
    calls::ItemKey,
    open::OpenError,
    schema,
};

/// Longest wait for a table or an index. An index over an existing large table takes minutes.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Time between two checks of the table's status.
const CHECK_EVERY: Duration = Duration::from_millis(500);

impl SetupClient {
    /// Executes the steps of a plan. Answers those that the engine does not support. A step that was executed before
    /// succeeds, so a plan can be repeated.
    pub async fn execute(
        &self,
        table: &str,
        steps: &[SetupStep],
    ) -> Result<Vec<SkippedStep>, OpenError> {
        let mut skipped = Vec::new();
        let client = &self.client;
        let failed = |failure, action| self.error(failure, action, table);
        for step in steps {
            match step {
                SetupStep::CreateTable => create(client, table)
                    .await
                    .map_err(|e| failed(e, "CreateTable"))?,
                SetupStep::Wait => self.wait_until_active(table).await?,
                SetupStep::AddIndex => add_index(client, table)
                    .await
                    .map_err(|e| failed(e, "UpdateTable"))?,
                SetupStep::EnableExpiry => {
                    let done = enable_expiry(client, table).await;
                    done.map_err(|failure| failed(failure, "UpdateTimeToLive"))?;
                }
                // Only local engines lack this feature, and a table works without it.
                SetupStep::EnableBackups => {
                    if let Err(failure) = enable_backups(client, table).await {
                        if failure.class != Class::Invalid {
                            return Err(failed(failure, "UpdateContinuousBackups"));
                        }
                        let (step, why) = (step.clone(), failure.message.to_string());
                        skipped.push(SkippedStep { step, why });
                    }
                }
                SetupStep::WriteMeta { slots } => {
                    let done = write_meta(client, table, *slots).await;
                    done.map_err(|failure| failed(failure, "PutItem"))?;
                }
                SetupStep::Drift(what) => tracing::warn!(table, "left as it is: {what}"),
                SetupStep::Foreign(why) => {
                    let (action, why) = ("setup", why.clone());
                    return Err(OpenError::Refused { action, why });
                }
            }
        }
        Ok(skipped)
    }

    /// The table, if there is one to delete. A table of another program is an error.
    pub async fn is_removable(&self, table: &str) -> Result<Option<TableShape>, OpenError> {
        let found = self.inspect(table).await?;
        let table = table.to_owned();
        match (found.table, found.meta) {
            (None, _) => Ok(None),
            (Some(shape), _) if !shape.has_dueline_key() => {
                let found = shape.key;
                Err(OpenError::ForeignKey { table, found })
            }
            (Some(_), Some(meta)) if meta.app != schema::APP => {
                let app = meta.app;
                Err(OpenError::Foreign { table, app })
            }
            // An incomplete setup leaves a table with the index, because both are created together.
            (Some(shape), None) if shape.is_active() && shape.index_problem().is_some() => {
                Err(OpenError::NotSetUp { table })
            }
            (shape, _) => Ok(shape),
        }
    }

    /// Deletes a table with everything in it, and waits until it is deleted. Answers whether there was one. A table of
    /// another program is not deleted.
    pub async fn remove(&self, table: &str) -> Result<bool, OpenError> {
        if self.is_removable(table).await?.is_none() {
            return Ok(false);
        }
        let sent = Box::pin(self.client.delete_table().table_name(table).send()).await;
        if let Err(failed) = sent {
            let failure = classify(&failed);
            match failure.class {
                Class::Missing => return Ok(false),
                // It is being deleted already.
                Class::InUse => {}
                _ => return Err(self.error(failure, "DeleteTable", table)),
            }
        }
        let until = Instant::now() + WAIT_MAX;
        while Instant::now() < until {
            if self.inspect(table).await?.table.is_none() {
                return Ok(true);
            }
            sleep(CHECK_EVERY).await;
        }
        let (table, status) = (table.to_owned(), "deleting".to_owned());
        Err(OpenError::NotActive { table, status })
    }

    async fn wait_until_active(&self, table: &str) -> Result<(), OpenError> {
        let until = Instant::now() + WAIT_MAX;
        let mut status = "missing".to_owned();
        while Instant::now() < until {
            let TableState { table: found, .. } = self.inspect(table).await?;
            if let Some(found) = found {
                let index = found.index.as_ref().map(|index| index.status.as_str());
                if found.status == "ACTIVE" && index == Some("ACTIVE") {
                    return Ok(());
                }
                status = found.status.to_lowercase();
            }
            sleep(CHECK_EVERY).await;
        }
        let table = table.to_owned();
        Err(OpenError::NotActive { table, status })
    }
}

fn invalid(error: BuildError) -> Failure {
    Failure {
        class: Class::Invalid,
        message: error.to_string().into(),
    }
}

fn attribute(name: &str, kind: Kind) -> Result<AttributeDefinition, Failure> {
    let attribute = AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(kind);
    attribute.build().map_err(invalid)
}

fn key(hash: &str, range: &str) -> Result<Vec<KeySchemaElement>, Failure> {
    let element = |name: &str, kind| {
        let element = KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(kind);
        element.build().map_err(invalid)
    };
    Ok(vec![
        element(hash, KeyType::Hash)?,
        element(range, KeyType::Range)?,
    ])
}

fn keys_only() -> Projection {
    Projection::builder()
        .projection_type(ProjectionType::KeysOnly)
        .build()
}

async fn create(client: &Client, table: &str) -> Result<(), Failure> {
    let index = GlobalSecondaryIndex::builder()
        .index_name(schema::DUE_INDEX)
        .set_key_schema(Some(key(schema::DUE_KEY, schema::DUE_HINT)?))
        .projection(keys_only());
    let call = client
        .create_table()
        .table_name(table)
        .attribute_definitions(attribute(schema::PK, Kind::S)?)
        .attribute_definitions(attribute(schema::SK, Kind::B)?)
        .attribute_definitions(attribute(schema::DUE_KEY, Kind::S)?)
        .attribute_definitions(attribute(schema::DUE_HINT, Kind::N)?)
        .set_key_schema(Some(key(schema::PK, schema::SK)?))
        .global_secondary_indexes(index.build().map_err(invalid)?)
        .billing_mode(BillingMode::PayPerRequest);
    match Box::pin(call.send()).await {
        Ok(_) => Ok(()),
        Err(failed) => match classify(&failed) {
            // Another process is creating the table; the next step waits for it.
            failure if failure.class == Class::InUse => Ok(()),
            failure => Err(failure),
        },
    }
}

async fn add_index(client: &Client, table: &str) -> Result<(), Failure> {
    let index = CreateGlobalSecondaryIndexAction::builder()
        .index_name(schema::DUE_INDEX)
        .set_key_schema(Some(key(schema::DUE_KEY, schema::DUE_HINT)?))
        .projection(keys_only());
    let update = GlobalSecondaryIndexUpdate::builder();
    let call = client
        .update_table()
        .table_name(table)
        .attribute_definitions(attribute(schema::DUE_KEY, Kind::S)?)
        .attribute_definitions(attribute(schema::DUE_HINT, Kind::N)?)
        .global_secondary_index_updates(update.create(index.build().map_err(invalid)?).build());
    match Box::pin(call.send()).await {
        Ok(_) => Ok(()),
        Err(failed) => Err(classify(&failed)),
    }
}

async fn enable_expiry(client: &Client, table: &str) -> Result<(), Failure> {
    let expiry = TimeToLiveSpecification::builder()
        .enabled(true)
        .attribute_name(schema::TTL);
    let call = client
        .update_time_to_live()
        .table_name(table)
        .time_to_live_specification(expiry.build().map_err(invalid)?);
    match Box::pin(call.send()).await {
        Ok(_) => Ok(()),
        Err(failed) => match classify(&failed) {
            failure if failure.message.contains("already enabled") => Ok(()),
            failure => Err(failure),
        },
    }
}

async fn enable_backups(client: &Client, table: &str) -> Result<(), Failure> {
    let recovery = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true);
    let call = client
        .update_continuous_backups()
        .table_name(table)
        .point_in_time_recovery_specification(recovery.build().map_err(invalid)?);
    match Box::pin(call.send()).await {
        Ok(_) => Ok(()),
        Err(failed) => Err(classify(&failed)),
    }
}

/// Writes the meta item unless there is one: the slots of a table never change.
async fn write_meta(client: &Client, table: &str, slots: u16) -> Result<(), Failure> {
    let mut item = ItemKey::new(schema::META, schema::META_SCHEMA).item();
    item.insert(APP.into(), text(schema::APP));
    item.insert(VERSION.into(), num(i64::from(schema::VERSION)));
    item.insert(SLOTS.into(), num(i64::from(slots)));
    let call = client
        .put_item()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(#pk)")
        .expression_attribute_names("#pk", schema::PK);
    match Box::pin(call.send()).await {
        Ok(_) => Ok(()),
        Err(failed) => match classify(&failed) {
            failure if failure.class == Class::ConditionFailed => Ok(()),
            failure => Err(failure),
        },
    }
}
