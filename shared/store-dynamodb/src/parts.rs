//! Parts of tasks that are stored apart.

use std::collections::HashSet;

use bytes::Bytes;
use dueline_domain::{TaskId, Timestamp};
use dueline_ports::StoreError;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    attr::{self, Item, get_bytes, num},
    calls::{Conditional, For, Key, Table},
    layout::Part,
    row::{Letter, PartRef, Parts},
    schema,
};

/// The bytes of a part.
pub(crate) const DATA: &str = "b";
/// When a part was written, in milliseconds.
pub(crate) const WRITTEN: &str = "c";

/// Writes parts. Each has a name of its own, so nothing is overwritten.
pub(crate) async fn put(
    table: &Table,
    of: For<'_>,
    partition: &str,
    id: &TaskId,
    parts: &[Part],
    now: Timestamp,
    expires_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    let writes = parts.iter().map(|part| {
        let mut item = Key::new(partition, part.name.sort_key(id)).item();
        item.insert(DATA.into(), attr::bytes(&part.bytes));
        item.insert(WRITTEN.into(), num(now.millis()));
        // A result only comes with the end, so it is known when it may go.
        if let Some(at) = expires_at.filter(|_| part.name.letter == Letter::Result) {
            item.insert(schema::TTL.into(), num(at.millis().div_euclid(1_000) + 1));
        }
        Box::pin(table.put(of, item, None))
    });
    let writes: Vec<_> = writes.collect();
    let mut writing = stream::iter(writes).buffer_unordered(8);
    while let Some(Conditional::Done | Conditional::Refused(_)) = writing.try_next().await? {}
    Ok(())
}

/// Deletes parts that nobody refers to. It may fail: the pruner finds what is left.
pub(crate) async fn delete(
    table: &Table,
    of: For<'_>,
    partition: &str,
    id: &TaskId,
    parts: &[PartRef],
) {
    if parts.is_empty() {
        return;
    }
    let keys: Vec<_> = parts
        .iter()
        .map(|part| Key::new(partition, part.sort_key(id)))
        .collect();
    if let Err(error) = table.delete_many(of, &keys).await {
        tracing::debug!(task.id = %id, %error, "parts are left for the pruner");
    }
}

/// Fetches the parts of a task that are not at hand yet; answers whether all are there.
pub(crate) async fn fetch(
    table: &Table,
    of: For<'_>,
    partition: &str,
    id: &TaskId,
    wanted: &[PartRef],
    parts: &mut Parts,
    consistent: bool,
) -> Result<bool, StoreError> {
    let missing: Vec<_> = wanted
        .iter()
        .filter(|part| !parts.contains_key(part))
        .copied()
        .collect();
    if missing.is_empty() {
        return Ok(true);
    }
    let keys: Vec<_> = missing
        .iter()
        .map(|part| Key::new(partition, part.sort_key(id)))
        .collect();
    let found = table
        .get_many(of, &keys, &[schema::SK, DATA], consistent)
        .await?;
    for item in found {
        if let Some((part, bytes)) = part_of(&item) {
            parts.insert(part, bytes);
        }
    }
    Ok(missing.iter().all(|part| parts.contains_key(part)))
}

/// The name and the bytes of a part's item.
pub(crate) fn part_of(item: &Item) -> Option<(PartRef, Bytes)> {
    let (_, part) = split(get_bytes(item, schema::SK).ok()??)?;
    let bytes = get_bytes(item, DATA).ok()??;
    Some((part?, Bytes::copy_from_slice(bytes)))
}

/// What a sort key among tasks names: a task, or a part of one. A part of a kind that is not known has no name.
pub(crate) fn split(key: &[u8]) -> Option<(TaskId, Option<PartRef>)> {
    let (id, rest) = key.split_first_chunk::<16>()?;
    let id = TaskId::from_bytes(*id);
    let [_, letter, write @ ..] = rest else {
        return Some((id, None));
    };
    let letters = [
        Letter::Payload,
        Letter::Checkpoint,
        Letter::Result,
        Letter::Error,
        Letter::Run,
        Letter::Extras,
    ];
    let letter = letters.into_iter().find(|known| *known as u8 == *letter);
    let write = write.try_into().ok();
    Some((
        id,
        letter
            .zip(write)
            .map(|(letter, write)| PartRef { letter, write }),
    ))
}

/// Whether a sort key names a task itself.
pub(crate) const fn is_task(key: &[u8]) -> bool {
    key.len() == 16
}

/// Names of parts as a set.
pub(crate) fn set(parts: Vec<PartRef>) -> HashSet<PartRef> {
    parts.into_iter().collect()
}
