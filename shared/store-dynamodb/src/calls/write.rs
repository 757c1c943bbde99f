//! Single and batch writes.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    error::SdkError,
    operation::{
        delete_item::DeleteItemError, put_item::PutItemError, update_item::UpdateItemError,
    },
    types::{
        AttributeValue, DeleteRequest, PutRequest, ReturnConsumedCapacity as Consumed,
        ReturnValuesOnConditionCheckFailure as OnFailure, WriteRequest,
    },
};
use dueline_aws::{Class, classify};
use dueline_ports::StoreError;

use super::{CallContext, ItemKey, MeteredTable, TRIES_MAX, pause};
use crate::{
    attr::{self, Item, write_units},
    error, schema,
};

/// Most writes of one batch, by DynamoDB's limit.
const BATCH_MAX: usize = 25;

/// How a conditional write ended.
#[derive(Debug)]
pub(crate) enum ConditionalOutcome {
    Done,
    /// The condition failed; the existing item, if there is one.
    Refused(Option<Item>),
}

/// The condition of a write.
#[derive(Clone, Debug)]
pub(crate) enum WriteCondition {
    /// There is no item with this key.
    Absent,
    /// An attribute has this value.
    Is(&'static str, AttributeValue),
}

/// The change of an item: attributes to set, to remove, and to increment. All others stay.
#[derive(Clone, Debug, Default)]
pub(crate) struct ItemChange {
    pub(crate) set: Vec<(String, AttributeValue)>,
    pub(crate) remove: Vec<String>,
    pub(crate) add: Vec<(String, i64)>,
}

/// Builds expressions with aliases for names and values.
#[derive(Default)]
pub(super) struct ExpressionBuilder {
    pub(super) text: String,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl ExpressionBuilder {
    fn name(&mut self, name: &str) -> String {
        let alias = format!("#n{}", self.names.len());
        self.names.insert(alias.clone(), name.to_owned());
        alias
    }

    fn value(&mut self, value: AttributeValue) -> String {
        let alias = format!(":v{}", self.values.len());
        self.values.insert(alias.clone(), value);
        alias
    }

    pub(super) fn condition(&mut self, condition: WriteCondition) -> String {
        match condition {
            WriteCondition::Absent => format!("attribute_not_exists({})", self.name(schema::PK)),
            WriteCondition::Is(name, value) => {
                let (name, value) = (self.name(name), self.value(value));
                format!("{name} = {value}")
            }
        }
    }

    pub(super) fn change(&mut self, change: ItemChange) {
        let mut clauses = Vec::new();
        let set = change.set.into_iter().map(|(name, value)| {
            let (name, value) = (self.name(&name), self.value(value));
            format!("{name} = {value}")
        });
        clauses.push(("SET ", set.collect::<Vec<_>>()));
        let remove = change.remove.iter().map(|name| self.name(name));
        clauses.push(("REMOVE ", remove.collect()));
        let add = change.add.into_iter().map(|(name, by)| {
            let (name, by) = (self.name(&name), self.value(attr::num(by)));
            format!("{name} {by}")
        });
        clauses.push(("ADD ", add.collect()));
        clauses.retain(|(_, parts)| !parts.is_empty());
        let clauses: Vec<_> = clauses
            .into_iter()
            .map(|(verb, parts)| format!("{verb}{}", parts.join(", ")))
            .collect();
        self.text = clauses.join(" ");
    }

    pub(super) fn names(&self) -> Option<HashMap<String, String>> {
        (!self.names.is_empty()).then(|| self.names.clone())
    }

    pub(super) fn values(&self) -> Option<HashMap<String, AttributeValue>> {
        (!self.values.is_empty()).then(|| self.values.clone())
    }
}

impl MeteredTable {
    pub(crate) async fn put(
        &self,
        context: CallContext<'_>,
        item: Item,
        condition: Option<WriteCondition>,
    ) -> Result<ConditionalOutcome, StoreError> {
        let mut expression = ExpressionBuilder::default();
        let condition = condition.map(|condition| expression.condition(condition));
        let size = attr::size(&item);
        let call = self
            .client
            .put_item()
            .table_name(&*self.name)
            .set_item(Some(item))
            .set_condition_expression(condition)
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .return_consumed_capacity(Consumed::Indexes);
        match Box::pin(call.send()).await {
            Ok(answer) => {
                self.count_write(context, answer.consumed_capacity());
                Ok(ConditionalOutcome::Done)
            }
            Err(failed) => self.refused(context, failed, size, |error| match error {
                PutItemError::ConditionalCheckFailedException(refused) => refused.item,
                _ => None,
            }),
        }
    }

    pub(crate) async fn update(
        &self,
        context: CallContext<'_>,
        key: &ItemKey,
        change: ItemChange,
        condition: Option<WriteCondition>,
    ) -> Result<ConditionalOutcome, StoreError> {
        let mut expression = ExpressionBuilder::default();
        expression.change(change);
        let condition = condition.map(|condition| expression.condition(condition));
        let call = self
            .client
            .update_item()
            .table_name(&*self.name)
            .set_key(Some(key.item()))
            .update_expression(&expression.text)
            .set_condition_expression(condition)
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .return_consumed_capacity(Consumed::Indexes);
        match Box::pin(call.send()).await {
            Ok(answer) => {
                self.count_write(context, answer.consumed_capacity());
                Ok(ConditionalOutcome::Done)
            }
            Err(failed) => self.refused(context, failed, 0, |error| match error {
                UpdateItemError::ConditionalCheckFailedException(refused) => refused.item,
                _ => None,
            }),
        }
    }

    pub(crate) async fn delete(
        &self,
        context: CallContext<'_>,
        key: &ItemKey,
        condition: Option<WriteCondition>,
    ) -> Result<ConditionalOutcome, StoreError> {
        let mut expression = ExpressionBuilder::default();
        let condition = condition.map(|condition| expression.condition(condition));
        let call = self
            .client
            .delete_item()
            .table_name(&*self.name)
            .set_key(Some(key.item()))
            .set_condition_expression(condition)
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_consumed_capacity(Consumed::Indexes);
        match Box::pin(call.send()).await {
            Ok(answer) => {
                self.count_write(context, answer.consumed_capacity());
                Ok(ConditionalOutcome::Done)
            }
            Err(failed) => self.refused(context, failed, 0, |error| match error {
                DeleteItemError::ConditionalCheckFailedException(refused) => refused.item,
                _ => None,
            }),
        }
    }

    /// Distinguishes a failed condition from a failed call.
    fn refused<E>(
        &self,
        context: CallContext<'_>,
        failed: SdkError<E>,
        size: usize,
        item: impl FnOnce(E) -> Option<Item>,
    ) -> Result<ConditionalOutcome, StoreError>
    where
        E: aws_sdk_dynamodb::error::ProvideErrorMetadata
            + std::error::Error
            + Send
            + Sync
            + 'static,
    {
        let failure = classify(&failed);
        if failure.class != Class::ConditionFailed {
            self.count_failed(context, failure.class);
            return Err(error::of_write(failure));
        }
        let item = match failed {
            SdkError::ServiceError(service) => item(service.into_err()),
            _ => None,
        };
        let existing = item.as_ref().map_or(0, attr::size);
        self.count_refused(context, write_units(existing.max(size)));
        Ok(ConditionalOutcome::Refused(item))
    }

    /// Puts items unconditionally.
    pub(crate) async fn put_many(
        &self,
        context: CallContext<'_>,
        items: Vec<Item>,
    ) -> Result<(), StoreError> {
        let request = |item| {
            let put = PutRequest::builder().set_item(Some(item)).build();
            put.map(|put| WriteRequest::builder().put_request(put).build())
        };
        let requests = items.into_iter().map(request).collect::<Result<_, _>>();
        self.write_many(
            context,
            requests.map_err(|error| StoreError::Invalid(error.to_string().into()))?,
        )
        .await
    }

    /// Deletes items; missing ones are fine.
    pub(crate) async fn delete_many(
        &self,
        context: CallContext<'_>,
        keys: &[ItemKey],
    ) -> Result<(), StoreError> {
        let request = |key: &ItemKey| {
            let delete = DeleteRequest::builder().set_key(Some(key.item())).build();
            delete.map(|delete| WriteRequest::builder().delete_request(delete).build())
        };
        let requests = keys.iter().map(request).collect::<Result<_, _>>();
        self.write_many(
            context,
            requests.map_err(|error| StoreError::Invalid(error.to_string().into()))?,
        )
        .await
    }

    /// Writes in batches. Writes that DynamoDB leaves unprocessed, because it is busy, are sent again.
    async fn write_many(
        &self,
        context: CallContext<'_>,
        requests: Vec<WriteRequest>,
    ) -> Result<(), StoreError> {
        for batch in requests.chunks(BATCH_MAX) {
            let mut left = HashMap::from([(self.name.to_string(), batch.to_vec())]);
            let mut tries = 0;
            while !left.is_empty() {
                let call = self.client.batch_write_item().set_request_items(Some(left));
                let sent = call.return_consumed_capacity(Consumed::Indexes).send();
                let answer = match Box::pin(sent).await {
                    Ok(answer) => answer,
                    Err(failed) => {
                        let failure = classify(&failed);
                        self.count_failed(context, failure.class);
                        return Err(error::of_write(failure));
                    }
                };
                self.count_write(context, answer.consumed_capacity());
                left = answer.unprocessed_items.unwrap_or_default();
                left.retain(|_, requests| !requests.is_empty());
                if left.is_empty() {
                    break;
                }
                tries += 1;
                if tries >= TRIES_MAX {
                    return Err(StoreError::Throttled);
                }
                pause(tries).await;
            }
        }
        Ok(())
    }
}
