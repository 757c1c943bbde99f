//! Submits with an idempotency key: key and task are written in one transaction.

use std::sync::Arc;

use dueline_domain::{Task, TaskId};
use dueline_ports::StoreError;

use crate::{
    attr::{self, InvalidData, Item, get_bytes, required},
    calls::{
        CallContext, ItemKey, TRIES_MAX, TransactionOutcome, TransactionWrite, WriteCondition,
        pause,
    },
    create::ExistingTask,
    jobs::JobEntry,
    row::TaskRow,
    store::DynamoStore,
    unique::KeyOwner,
};

/// Attribute of a key's item with the id of its task.
pub(crate) const TASK: &str = "i";

impl DynamoStore {
    /// Writes a task with its key, which it takes over from `owner`. Answers the existing task if the id or the key is
    /// taken.
    pub(crate) async fn put_keyed(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        key: &Arc<str>,
        mut owner: Option<KeyOwner>,
        row: &TaskRow,
        item: Item,
    ) -> Result<Option<ExistingTask>, StoreError> {
        let (partitions, id) = (&entry.partitions, row.task.id);
        let key = ItemKey::new(partitions.of_key(key), key.as_bytes());
        let mut key_item = key.item();
        key_item.insert(TASK.into(), attr::bytes(id.as_bytes()));
        for tries in 0..TRIES_MAX {
            let condition = match owner {
                None => WriteCondition::Absent,
                Some(old) => WriteCondition::Is(TASK, attr::bytes(old.task.as_bytes())),
            };
            let mut writes = vec![
                TransactionWrite::Put(key_item.clone(), Some(condition)),
                TransactionWrite::Put(item.clone(), Some(WriteCondition::Absent)),
            ];
            // A task that does not exist any more must not have been stored again.
            if let Some(old) = owner.filter(|old| !old.exists && old.task != id) {
                let old = ItemKey::new(partitions.of_task(&old.task), old.task.as_bytes());
                writes.push(TransactionWrite::Check(old, WriteCondition::Absent));
            }
            let mut reasons = match self.table.transact(context, &writes).await? {
                TransactionOutcome::Done => return Ok(None),
                TransactionOutcome::Refused(reasons) => reasons.into_iter(),
            };
            let (key_refused, task_refused) = (reasons.next(), reasons.next());
            // The id is checked before the key: a submit with the id of an existing task is a repetition of its submit.
            if let Some(reason) = task_refused.filter(|reason| reason.refused) {
                return Ok(Some(
                    reason
                        .item
                        .map_or(ExistingTask::Unknown, ExistingTask::Item),
                ));
            }
            owner = match key_refused
                .filter(|reason| reason.refused)
                .and_then(|r| r.item)
            {
                Some(item) => {
                    let task = task_of_key(&item)
                        .map_err(|invalid| invalid.into_error("an idempotency key"))?;
                    if let Some(row) = self.load(context, partitions, &task).await? {
                        return Ok(Some(ExistingTask::Row(row)));
                    }
                    let exists = false;
                    Some(KeyOwner { task, exists })
                }
                None => None,
            };
            if tries > 0 {
                pause(tries).await;
            }
        }
        Err(StoreError::Throttled)
    }
}

impl DynamoStore {
    /// The task with a key.
    pub(crate) async fn task_by_key(
        &self,
        entry: &JobEntry,
        key: &Arc<str>,
    ) -> Result<Option<Task>, StoreError> {
        let (partitions, context) = (
            &entry.partitions,
            CallContext::of_job(entry.partitions.job.as_str(), "list"),
        );
        let key = ItemKey::new(partitions.of_key(key), key.as_bytes());
        let Some(item) = self.table.get(context, &key, true).await? else {
            return Ok(None);
        };
        let id = task_of_key(&item).map_err(|invalid| invalid.into_error("an idempotency key"))?;
        let row = self.load(context, partitions, &id).await?;
        Ok(row.map(|row| Arc::unwrap_or_clone(row).task))
    }
}

/// The id of the task that a key's item names.
pub(crate) fn task_of_key(item: &Item) -> Result<TaskId, InvalidData> {
    let id = required(get_bytes(item, TASK)?, TASK)?;
    let id = id
        .try_into()
        .map_err(|_| InvalidData::new("an id does not have 16 bytes"))?;
    Ok(TaskId::from_bytes(id))
}
