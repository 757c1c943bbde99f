//! Write transactions.

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

use super::{
    CallContext, ItemChange, ItemKey, MeteredTable, TRIES_MAX, WriteCondition, pause,
    write::ExpressionBuilder,
};
use crate::{attr::Item, error};

/// One write, or check, of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum TransactionWrite {
    Put(Item, Option<WriteCondition>),
    Update(ItemKey, ItemChange, Option<WriteCondition>),
    Delete(ItemKey, WriteCondition),
    Check(ItemKey, WriteCondition),
}

/// The result of one write of a cancelled transaction.
#[derive(Debug, Default)]
pub(crate) struct CancellationReason {
    /// Whether the condition of this write failed.
    pub(crate) refused: bool,
    pub(crate) item: Option<Item>,
}

/// How a transaction ended.
#[derive(Debug)]
pub(crate) enum TransactionOutcome {
    Done,
    /// A condition failed; one reason for each write.
    Refused(Vec<CancellationReason>),
}

impl MeteredTable {
    /// Executes all writes or none. A transaction that conflicts with another one is tried again.
    pub(crate) async fn transact(
        &self,
        context: CallContext<'_>,
        writes: &[TransactionWrite],
    ) -> Result<TransactionOutcome, StoreError> {
        for tries in 0..TRIES_MAX {
            let mut call = self.client.transact_write_items();
            for write in writes {
                call = call.transact_items(self.action(write)?);
            }
            let call = call.return_consumed_capacity(Consumed::Indexes);
            let failed = match Box::pin(call.send()).await {
                Ok(answer) => {
                    self.count_write(context, answer.consumed_capacity());
                    return Ok(TransactionOutcome::Done);
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
                self.count_failed(context, failure.class);
                return Err(error::of_write(failure));
            };
            // Each write is charged twice its size, whatever cancelled the transaction.
            self.count_refused(context, 2 * writes.len());
            let is = |code: &str| reasons.iter().any(|reason| reason.code() == Some(code));
            if is("ConditionalCheckFailed") {
                let reasons = reasons.into_iter().map(|reason| CancellationReason {
                    refused: reason.code() == Some("ConditionalCheckFailed"),
                    item: reason.item,
                });
                return Ok(TransactionOutcome::Refused(reasons.collect()));
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

    fn action(&self, write: &TransactionWrite) -> Result<TransactWriteItem, StoreError> {
        let invalid = |error: aws_sdk_dynamodb::error::BuildError| {
            StoreError::Invalid(error.to_string().into())
        };
        let mut expression = ExpressionBuilder::default();
        let item = TransactWriteItem::builder();
        Ok(match write.clone() {
            TransactionWrite::Put(content, condition) => {
                let condition = condition.map(|condition| expression.condition(condition));
                let put = Put::builder()
                    .table_name(&*self.name)
                    .set_item(Some(content))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(expression.names())
                    .set_expression_attribute_values(expression.values())
                    .return_values_on_condition_check_failure(OnFailure::AllOld);
                item.put(put.build().map_err(invalid)?)
            }
            TransactionWrite::Update(key, change, condition) => {
                expression.change(change);
                let condition = condition.map(|condition| expression.condition(condition));
                let update = Update::builder()
                    .table_name(&*self.name)
                    .set_key(Some(key.item()))
                    .update_expression(&expression.text)
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(expression.names())
                    .set_expression_attribute_values(expression.values())
                    .return_values_on_condition_check_failure(OnFailure::AllOld);
                item.update(update.build().map_err(invalid)?)
            }
            TransactionWrite::Delete(key, condition) => {
                let condition = expression.condition(condition);
                let delete = Delete::builder()
                    .table_name(&*self.name)
                    .set_key(Some(key.item()))
                    .condition_expression(condition)
                    .set_expression_attribute_names(expression.names())
                    .set_expression_attribute_values(expression.values());
                item.delete(delete.build().map_err(invalid)?)
            }
            TransactionWrite::Check(key, condition) => {
                let condition = expression.condition(condition);
                let check = ConditionCheck::builder()
                    .table_name(&*self.name)
                    .set_key(Some(key.item()))
                    .condition_expression(condition)
                    .set_expression_attribute_names(expression.names())
                    .set_expression_attribute_values(expression.values());
                item.condition_check(check.build().map_err(invalid)?)
            }
        }
        .build())
    }
}
