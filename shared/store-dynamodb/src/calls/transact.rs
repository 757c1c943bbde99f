//! Transactions.

use aws_sdk_dynamodb::{
    error::SdkError,
    operation::transact_write_items::TransactWriteItemsError,
    types::{
        ConditionCheck, Delete, Put, ReturnConsumedCapacity as Consumed,
        ReturnValuesOnConditionCheckFailure as OnFailure, TransactWriteItem, Update,
    },
};
use dueline_aws::classify;
use dueline_ports::StoreError;

use super::{Change, Condition, For, Key, TRIES_MAX, Table, pause, write::Said};
use crate::{attr::Item, error};

/// One action of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Put(Item, Option<Condition>),
    Update(Key, Change, Option<Condition>),
    Delete(Key, Condition),
    Check(Key, Condition),
}

/// Why an action stopped its transaction.
#[derive(Debug, Default)]
pub(crate) struct Reason {
    pub(crate) refused: bool,
    pub(crate) item: Option<Item>,
}

/// How a transaction ended.
#[derive(Debug)]
pub(crate) enum Transacted {
    Done,
    /// A condition did not hold: the reasons, one for each action.
    Refused(Vec<Reason>),
}

impl Table {
    /// All or nothing. A transaction that meets another one is tried again.
    pub(crate) async fn transact(
        &self,
        of: For<'_>,
        writes: &[Write],
    ) -> Result<Transacted, StoreError> {
        for tries in 0..TRIES_MAX {
            let mut call = self.client.transact_write_items();
            for write in writes {
                call = call.transact_items(self.action(write)?);
            }
            let call = call.return_consumed_capacity(Consumed::Indexes);
            let failed = match Box::pin(call.send()).await {
                Ok(answer) => {
                    self.count_write(of, answer.consumed_capacity());
                    return Ok(Transacted::Done);
                }
                Err(failed) => failed,
            };
            let failure = classify(&failed);
            let reasons = match failed {
                SdkError::ServiceError(service) => match service.into_err() {
                    TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                        cancelled.cancellation_reasons
                    }
                    _ => None,
                },
                _ => None,
            };
            let Some(reasons) = reasons else {
                self.count_failed(of, failure.class);
                return Err(error::of_write(failure));
            };
            // Each action is charged twice its size, whatever stopped the transaction.
            self.count_refused(of, 2 * writes.len());
            let is = |code: &str| reasons.iter().any(|reason| reason.code() == Some(code));
            if is("ConditionalCheckFailed") {
                let reasons = reasons.into_iter().map(|reason| Reason {
                    refused: reason.code() == Some("ConditionalCheckFailed"),
                    item: reason.item,
                });
                return Ok(Transacted::Refused(reasons.collect()));
            }
            let message = format!("transaction cancelled: {}", failure.message);
            if is("ValidationError") || is("ItemCollectionSizeLimitExceeded") {
                return Err(StoreError::Invalid(message.into()));
            }
            if !is("TransactionConflict") {
                return Err(StoreError::Throttled);
            }
            pause(tries).await;
        }
        Err(StoreError::Throttled)
    }

    fn action(&self, write: &Write) -> Result<TransactWriteItem, StoreError> {
        let invalid = |error: aws_sdk_dynamodb::error::BuildError| {
            StoreError::Invalid(error.to_string().into())
        };
        let mut said = Said::default();
        let item = TransactWriteItem::builder();
        Ok(match write.clone() {
            Write::Put(content, condition) => {
                let condition = condition.map(|condition| said.condition(condition));
                let put = Put::builder()
                    .table_name(&*self.name)
                    .set_item(Some(content))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(said.names())
                    .set_expression_attribute_values(said.values())
                    .return_values_on_condition_check_failure(OnFailure::AllOld);
                item.put(put.build().map_err(invalid)?)
            }
            Write::Update(key, change, condition) => {
                said.change(change);
                let condition = condition.map(|condition| said.condition(condition));
                let update = Update::builder()
                    .table_name(&*self.name)
                    .set_key(Some(key.item()))
                    .update_expression(&said.text)
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(said.names())
                    .set_expression_attribute_values(said.values())
                    .return_values_on_condition_check_failure(OnFailure::AllOld);
                item.update(update.build().map_err(invalid)?)
            }
            Write::Delete(key, condition) => {
                let condition = said.condition(condition);
                let delete = Delete::builder()
                    .table_name(&*self.name)
                    .set_key(Some(key.item()))
                    .condition_expression(condition)
                    .set_expression_attribute_names(said.names())
                    .set_expression_attribute_values(said.values());
                item.delete(delete.build().map_err(invalid)?)
            }
            Write::Check(key, condition) => {
                let condition = said.condition(condition);
                let check = ConditionCheck::builder()
                    .table_name(&*self.name)
                    .set_key(Some(key.item()))
                    .condition_expression(condition)
                    .set_expression_attribute_names(said.names())
                    .set_expression_attribute_values(said.values());
                item.condition_check(check.build().map_err(invalid)?)
            }
        }
        .build())
    }
}
