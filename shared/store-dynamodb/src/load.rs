//! `get`: reads one task.

use std::sync::Arc;

use bytes::Bytes;
use dueline_domain::{JobName, Task, TaskId};
use dueline_ports::StoreError;

use crate::{
    attr::{InvalidData, Item},
    blobs,
    calls::{CallContext, ItemKey},
    row::{self, BlobKind, BlobMap, TaskRow},
    schema::JobPartitions,
    store::DynamoStore,
};

/// Most reads of a task whose blobs change between the reads.
const TRIES_MAX: u32 = 4;

/// Which payload, checkpoint and result of a task are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bodies {
    /// All.
    All,
    /// Those within its item. The others count as empty, and a write of the task leaves them as they are.
    Inline,
}

impl Bodies {
    /// The blobs of an item that are not to be read.
    pub(crate) fn known(self, item: &Item) -> BlobMap {
        if self == Self::All {
            return BlobMap::new();
        }
        let bodies = row::blob_refs(item).into_iter().filter(|blob| {
            matches!(
                blob.kind,
                BlobKind::Payload | BlobKind::Checkpoint | BlobKind::Result
            )
        });
        bodies.map(|blob| (blob, Bytes::new())).collect()
    }
}

impl DynamoStore {
    pub(crate) async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        let jobs = self.jobs(false).await?;
        let Some(entry) = jobs.get(job) else {
            return Ok(None);
        };
        let context = CallContext::of_job(job.as_str(), "get");
        let row = self.load(context, &entry.partitions, id).await?;
        Ok(row.map(|row| Arc::unwrap_or_clone(row).task))
    }

    /// A task as of the last acknowledged write, with its blobs.
    pub(crate) async fn load(
        &self,
        context: CallContext<'_>,
        partitions: &JobPartitions,
        id: &TaskId,
    ) -> Result<Option<Arc<TaskRow>>, StoreError> {
        self.load_consistent(context, partitions, id, Bodies::All)
            .await
    }

    /// A task as of the last acknowledged write.
    pub(crate) async fn load_consistent(
        &self,
        context: CallContext<'_>,
        partitions: &JobPartitions,
        id: &TaskId,
        bodies: Bodies,
    ) -> Result<Option<Arc<TaskRow>>, StoreError> {
        let key = ItemKey::new(partitions.of_task(id), id.as_bytes());
        for tries in 0..TRIES_MAX {
            let Some(item) = self.table.get(context, &key, true).await? else {
                return Ok(None);
            };
            let last = tries + 1 == TRIES_MAX;
            let known = bodies.known(&item);
            if let Some(row) = self
                .decode_with_blobs(context, partitions, id, item, known, last)
                .await?
            {
                return Ok(Some(Arc::new(row)));
            }
        }
        Ok(None)
    }

    /// A task by an eventually consistent read, which costs half and may be old. `None` when there is no such task, or
    /// when a blob of the old version is deleted already.
    pub(crate) async fn load_eventual(
        &self,
        context: CallContext<'_>,
        partitions: &JobPartitions,
        id: &TaskId,
        bodies: Bodies,
    ) -> Result<Option<Arc<TaskRow>>, StoreError> {
        let key = ItemKey::new(partitions.of_task(id), id.as_bytes());
        let Some(item) = self.table.get(context, &key, false).await? else {
            return Ok(None);
        };
        let known = bodies.known(&item);
        let row = self
            .decode_with_blobs(context, partitions, id, item, known, false)
            .await?;
        Ok(row.map(Arc::new))
    }

    /// Decodes an item, and fetches the blobs that `blobs` lacks. `None` when a blob does not exist, because the task
    /// has been written since the item was read; with `last` that is an error.
    pub(crate) async fn decode_with_blobs(
        &self,
        context: CallContext<'_>,
        partitions: &JobPartitions,
        id: &TaskId,
        item: Item,
        mut blobs: BlobMap,
        last: bool,
    ) -> Result<Option<TaskRow>, StoreError> {
        let refs = row::blob_refs(&item);
        // Blobs never change, so an eventually consistent read is enough. A blob that it does not find yet is read
        // again, consistently.
        let partition = partitions.of_task(id);
        for consistent in [false, true] {
            let table = &self.table;
            if blobs::fetch(
                table, context, &partition, id, &refs, &mut blobs, consistent,
            )
            .await?
            {
                let row = row::decode(&partitions.job, *id, item, &blobs, false);
                return row
                    .map(Some)
                    .map_err(|invalid| self.report_unreadable(context, id, invalid));
            }
        }
        if last {
            let invalid = InvalidData::new("a blob is missing");
            return Err(self.report_unreadable(context, id, invalid));
        }
        Ok(None)
    }

    /// Logs and counts a task that cannot be decoded, and answers the error.
    pub(crate) fn report_unreadable(
        &self,
        context: CallContext<'_>,
        id: &TaskId,
        invalid: InvalidData,
    ) -> StoreError {
        tracing::error!(task.id = %id, job.name = context.job, error = %invalid, "unreadable task");
        metrics::counter!("dueline_store_unreadable_total").increment(1);
        invalid.into_error(format!("task {id}"))
    }
}
