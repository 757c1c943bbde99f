//! Blobs: payloads, results, errors and past runs that are stored apart from their task's item.

use std::collections::HashSet;

use bytes::Bytes;
use dueline_domain::{TaskId, Timestamp};
use dueline_ports::StoreError;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    attr::{self, Item, get_bytes, num},
    calls::{CallContext, ConditionalOutcome, ItemKey, MeteredTable},
    encode::NewBlob,
    row::{BlobKind, BlobMap, BlobRef},
    schema,
};

/// Attribute with the bytes of a blob.
pub(crate) const DATA: &str = "b";
/// Attribute with the time when a blob was written, in milliseconds.
pub(crate) const WRITTEN: &str = "c";

/// Writes blobs. Each has a unique name, so nothing is overwritten.
pub(crate) async fn put(
    table: &MeteredTable,
    context: CallContext<'_>,
    partition: &str,
    id: &TaskId,
    blobs: &[NewBlob],
    now: Timestamp,
    expires_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    let writes = blobs.iter().map(|blob| {
        let mut item = ItemKey::new(partition, blob.name.sort_key(id)).item();
        item.insert(DATA.into(), attr::bytes(&blob.bytes));
        item.insert(WRITTEN.into(), num(now.millis()));
        // A result is written by the last write of its task, so its expiry is known.
        if let Some(at) = expires_at.filter(|_| blob.name.kind == BlobKind::Result) {
            item.insert(schema::TTL.into(), num(at.millis().div_euclid(1_000) + 1));
        }
        Box::pin(table.put(context, item, None))
    });
    let writes: Vec<_> = writes.collect();
    let mut writing = stream::iter(writes).buffer_unordered(8);
    while let Some(ConditionalOutcome::Done | ConditionalOutcome::Refused(_)) =
        writing.try_next().await?
    {}
    Ok(())
}

/// Deletes blobs to which no task refers. When a delete fails, the pruner deletes the blobs later.
pub(crate) async fn delete(
    table: &MeteredTable,
    context: CallContext<'_>,
    partition: &str,
    id: &TaskId,
    blobs: &[BlobRef],
) {
    if blobs.is_empty() {
        return;
    }
    let keys: Vec<_> = blobs
        .iter()
        .map(|blob| ItemKey::new(partition, blob.sort_key(id)))
        .collect();
    if let Err(error) = table.delete_many(context, &keys).await {
        tracing::debug!(task.id = %id, %error, "failed to delete blobs; the pruner will delete them");
    }
}

/// Adds those blobs of a task to `blobs` that it lacks. Answers whether all were found.
pub(crate) async fn fetch(
    table: &MeteredTable,
    context: CallContext<'_>,
    partition: &str,
    id: &TaskId,
    refs: &[BlobRef],
    blobs: &mut BlobMap,
    consistent: bool,
) -> Result<bool, StoreError> {
    let missing: Vec<_> = refs
        .iter()
        .filter(|blob| !blobs.contains_key(blob))
        .copied()
        .collect();
    if missing.is_empty() {
        return Ok(true);
    }
    let keys: Vec<_> = missing
        .iter()
        .map(|blob| ItemKey::new(partition, blob.sort_key(id)))
        .collect();
    let found = table
        .get_many(context, &keys, &[schema::SK, DATA], consistent)
        .await?;
    for item in found {
        if let Some((name, bytes)) = blob_of(&item) {
            blobs.insert(name, bytes);
        }
    }
    Ok(missing.iter().all(|blob| blobs.contains_key(blob)))
}

/// The name and the bytes of a blob's item.
pub(crate) fn blob_of(item: &Item) -> Option<(BlobRef, Bytes)> {
    let (_, name) = split_key(get_bytes(item, schema::SK).ok()??)?;
    let bytes = get_bytes(item, DATA).ok()??;
    Some((name?, Bytes::copy_from_slice(bytes)))
}

/// The task that a sort key names, and the blob of it, if it names one. A blob of an unknown kind is `None` as well;
/// see [`is_task`].
pub(crate) fn split_key(key: &[u8]) -> Option<(TaskId, Option<BlobRef>)> {
    let (id, rest) = key.split_first_chunk::<16>()?;
    let id = TaskId::from_bytes(*id);
    let [_, code, write @ ..] = rest else {
        return Some((id, None));
    };
    let kinds = [
        BlobKind::Payload,
        BlobKind::Checkpoint,
        BlobKind::Result,
        BlobKind::Error,
        BlobKind::Run,
        BlobKind::TaskOptions,
    ];
    let kind = kinds.into_iter().find(|kind| *kind as u8 == *code);
    let write = write.try_into().ok();
    Some((
        id,
        kind.zip(write).map(|(kind, write)| BlobRef { kind, write }),
    ))
}

/// Whether a sort key names a task itself.
pub(crate) const fn is_task(key: &[u8]) -> bool {
    key.len() == 16
}

/// Names of blobs as a set.
pub(crate) fn set(blobs: Vec<BlobRef>) -> HashSet<BlobRef> {
    blobs.into_iter().collect()
}
