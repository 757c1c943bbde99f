//! Finished tasks past their retention, and orphaned blobs.

use dueline_domain::TaskId;
use dueline_ports::StoreError;
use tokio::time::Duration;

use super::PruneBudget;
use crate::{
    attr::{self, Item, get_bytes, get_num, get_text, id_bytes},
    blobs::{self, WRITTEN},
    calls::{CallContext, ConditionalOutcome, ItemKey, QueryRequest, WriteCondition},
    jobs::JobEntry,
    keyed,
    row::{self, BlobRef, name},
    schema,
    store::DynamoStore,
};

/// Age from which an unreferenced blob counts as orphaned: blobs are written before their task.
const ORPHAN_AGE: Duration = Duration::from_secs(3_600);

/// A blob to which its task does not seem to refer.
struct OrphanedBlob {
    id: TaskId,
    blob: BlobRef,
}

impl DynamoStore {
    /// Prunes one page of a slot. Answers where the next page begins.
    pub(super) async fn prune_tasks(
        &self,
        entry: &JobEntry,
        slot: u16,
        after: Option<Item>,
        budget: &mut PruneBudget,
    ) -> Result<Option<Item>, StoreError> {
        let context = CallContext::of_job(entry.partitions.job.as_str(), "prune");
        let partition = entry.partitions.tasks(slot);
        let request = QueryRequest {
            partition: &partition,
            after,
            ..QueryRequest::default()
        };
        let page = self.table.query(context, request).await?;
        budget.reads += 1;
        budget.units += page.read_units;
        let mut orphans = Vec::new();
        let mut current: Option<(TaskId, Vec<BlobRef>)> = None;
        for item in &page.items {
            let Some(key) = get_bytes(item, schema::SK).ok().flatten() else {
                continue;
            };
            let Some((id, blob)) = blobs::split_key(key) else {
                continue;
            };
            if blobs::is_task(key) {
                if budget.room() == 0 {
                    // The next call begins with this task.
                    let position = current.map(|(id, _)| behind(&partition, &id));
                    self.delete_orphans(context, &partition, orphans).await?;
                    return Ok(Some(position.unwrap_or_else(|| before(&partition, &id))));
                }
                current = Some((id, row::blob_refs(item)));
                if self.is_expired(entry, item, budget)
                    && self.delete_task(context, entry, &id, item).await?
                {
                    budget.deleted += 1;
                }
                continue;
            }
            let written = get_num(item, WRITTEN).ok().flatten().unwrap_or(0);
            let is_old =
                written + i64::try_from(ORPHAN_AGE.as_millis()).unwrap_or(0) <= budget.now.millis();
            let in_use = current.as_ref().is_some_and(|(task, refs)| {
                *task == id && blob.is_some_and(|blob| refs.contains(&blob))
            });
            if let Some(blob) = blob.filter(|_| is_old && !in_use) {
                orphans.push(OrphanedBlob { id, blob });
            }
        }
        self.delete_orphans(context, &partition, orphans).await?;
        Ok(page.next)
    }

    /// Whether the retention of a task has passed, and the task owes nothing.
    fn is_expired(&self, entry: &JobEntry, item: &Item, budget: &PruneBudget) -> bool {
        if item.contains_key(name::OWED) {
            return false;
        }
        let finished_at = get_num(item, name::FINISHED).ok().flatten();
        let retention = entry.job.policy.retention;
        finished_at.zip(retention).is_some_and(|(at, retention)| {
            dueline_domain::Timestamp::clamped(at).after(retention) <= budget.now
        })
    }

    /// Deletes a task with its blobs and its key, unless the task has been written since, by a redrive for example.
    async fn delete_task(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        id: &TaskId,
        item: &Item,
    ) -> Result<bool, StoreError> {
        let (partitions, partition) = (&entry.partitions, entry.partitions.of_task(id));
        let Ok(write) = row::write_id(item) else {
            return Ok(false);
        };
        let unchanged = WriteCondition::Is(name::WRITE, id_bytes(write.to_stored()));
        let key = ItemKey::new(&partition, id.as_bytes());
        let outcome = self.table.delete(context, &key, Some(unchanged)).await?;
        if !matches!(outcome, ConditionalOutcome::Done) {
            return Ok(false);
        }
        blobs::delete(&self.table, context, &partition, id, &row::blob_refs(item)).await;
        if let Some(key) = get_text(item, name::KEY).ok().flatten() {
            let key = ItemKey::new(partitions.of_key(key), key.as_bytes());
            let of_task = WriteCondition::Is(keyed::TASK, attr::bytes(id.as_bytes()));
            self.table.delete(context, &key, Some(of_task)).await?;
        }
        Ok(true)
    }

    /// Deletes blobs to which their task does not refer, after a consistent read of the task.
    async fn delete_orphans(
        &self,
        context: CallContext<'_>,
        partition: &str,
        orphans: Vec<OrphanedBlob>,
    ) -> Result<(), StoreError> {
        let mut at = 0;
        while let Some(OrphanedBlob { id, .. }) = orphans.get(at) {
            let same = orphans[at..].iter().take_while(|other| other.id == *id);
            let mut names: Vec<_> = same.map(|other| other.blob).collect();
            at += names.len();
            let task = self
                .table
                .get(context, &ItemKey::new(partition, id.as_bytes()), true)
                .await?;
            let in_use = blobs::set(task.as_ref().map(row::blob_refs).unwrap_or_default());
            names.retain(|blob| !in_use.contains(blob));
            blobs::delete(&self.table, context, partition, id, &names).await;
        }
        Ok(())
    }
}

/// The position behind a task and all its blobs.
fn behind(partition: &str, id: &TaskId) -> Item {
    let mut key = id.as_bytes().to_vec();
    key.extend([255; 8]);
    ItemKey::new(partition, key).item()
}

/// The position before a task.
fn before(partition: &str, id: &TaskId) -> Item {
    let mut key = *id.as_bytes();
    // The position behind the next lower id.
    for byte in key.iter_mut().rev() {
        let (lower, borrowed) = byte.overflowing_sub(1);
        *byte = lower;
        if !borrowed {
            break;
        }
    }
    behind(partition, &TaskId::from_bytes(key))
}
