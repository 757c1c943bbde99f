//! Lists of tasks by due time: of those that wait for their time, which the due index has almost in this order.
//!
//! The index is sorted by the hint, which is at most [`BEHIND_MAX`] earlier than the due time of such a task. So a task is
//! listed as soon as every entry was read that may belong to an earlier one.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use dueline_domain::{TaskId, Timestamp};
use dueline_ports::{ListQuery, Page, StoreError};

use crate::{
    attr::{Item, num},
    calls::{CallContext, ItemKey, QueryRequest, SortRange},
    hint::BEHIND_MAX,
    jobs::JobEntry,
    list::matches,
    row::{self, BlobMap},
    store::DynamoStore,
};

/// Most pages of the index that one call reads before it answers a short page.
const READS_MAX: usize = 96;
/// Entries of the first page of a shard, and of the largest one.
const ENTRIES: (usize, usize) = (50, 1_000);

/// Where a task stands in a list: due time in milliseconds, id.
type Position = (i64, TaskId);

const fn prefix(descending: bool) -> &'static str {
    if descending { "d3." } else { "d2." }
}

fn cursor((at, id): Position, descending: bool) -> Arc<str> {
    format!("{}{at:x}.{id}", prefix(descending)).into()
}

fn parse_cursor(text: &str, descending: bool) -> Result<Position, StoreError> {
    let parse = || {
        let (at, id) = text.strip_prefix(prefix(descending))?.split_once('.')?;
        let at = i64::from_str_radix(at, 16).ok()?;
        Some((at, TaskId::parse(id).ok()?))
    };
    parse().ok_or_else(|| {
        StoreError::Invalid(Arc::from("cursor was not made by a list in this order"))
    })
}

/// Reads one shard of the due index.
struct ShardReader {
    partition: String,
    after: Option<Item>,
    /// The hint of the last entry that was read.
    read_to: Option<i64>,
    ended: bool,
    limit: usize,
}

/// A list that is being read. Positions and times are negated in a descending one, so that smaller is always first.
struct DueList<'a> {
    query: &'a ListQuery,
    descending: bool,
    after: Option<Position>,
    shards: Vec<ShardReader>,
    /// Tasks that were read and not listed yet.
    waiting: BTreeMap<(i64, OrderedId), (TaskId, Item)>,
}

/// Ids in the order of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OrderedId {
    Ascending(TaskId),
    Descending(Reverse<TaskId>),
}

impl DueList<'_> {
    const fn sign(&self) -> i64 {
        if self.descending { -1 } else { 1 }
    }

    const fn order(&self, id: TaskId) -> OrderedId {
        match self.descending {
            false => OrderedId::Ascending(id),
            true => OrderedId::Descending(Reverse(id)),
        }
    }

    /// No entry that is not read yet belongs to a task before this time; `None` when all were read.
    fn known_to(&self) -> Option<i64> {
        let slack = match self.descending {
            // A task with an earlier hint may be due this much later.
            true => millis(BEHIND_MAX),
            false => 0,
        };
        let open = self.shards.iter().filter(|shard| !shard.ended);
        let known = |shard: &ShardReader| {
            let start = if self.descending {
                i64::MAX - slack
            } else {
                i64::MIN
            };
            (shard.read_to.unwrap_or(start) + slack).saturating_mul(self.sign())
        };
        open.map(known).min()
    }

    /// The next task, if it is certain that none comes before it.
    fn next(&mut self) -> Option<(Position, TaskId, Item)> {
        let known_to = self.known_to();
        let first = self.waiting.first_entry()?;
        let at = first.key().0;
        if known_to.is_some_and(|known| at >= known) {
            return None;
        }
        let (id, item) = first.remove();
        Some(((at * self.sign(), id), id, item))
    }

    /// The shard that holds the list up.
    fn next_shard(&mut self) -> Option<&mut ShardReader> {
        let sign = self.sign();
        let open = self.shards.iter_mut().filter(|shard| !shard.ended);
        open.min_by_key(|shard| {
            shard
                .read_to
                .map_or(i64::MIN, |hint| hint.saturating_mul(sign))
        })
    }

    fn add(&mut self, id: TaskId, item: Item) {
        let Ok((kind, Some(at))) = row::state_and_trigger(&item) else {
            return;
        };
        if !self.query.states.contains(&kind) {
            return;
        }
        let key = (at.millis() * self.sign(), self.order(id));
        let after = self
            .after
            .map(|(at, id)| (at * self.sign(), self.order(id)));
        if after.is_none_or(|after| key > after) {
            self.waiting.insert(key, (id, item));
        }
    }
}

impl DynamoStore {
    /// Tasks by due time. The query names states whose tasks wait for their time.
    pub(crate) async fn list_due(
        &self,
        entry: &JobEntry,
        query: &ListQuery,
    ) -> Result<Page, StoreError> {
        let descending = query.order.is_descending();
        let after = query.cursor.as_deref();
        let after = after
            .map(|text| parse_cursor(text, descending))
            .transpose()?;
        let context = CallContext::of_job(entry.partitions.job.as_str(), "list");
        let mut partitions = self.lane_partitions(context, entry).await?;
        partitions.extend((0..entry.shards).map(|shard| entry.partitions.due(shard)));
        let shards = partitions.into_iter().map(|partition| ShardReader {
            partition,
            after: None,
            read_to: None,
            ended: false,
            limit: ENTRIES.0,
        });
        let mut list = DueList {
            query,
            descending,
            after,
            shards: shards.collect(),
            waiting: BTreeMap::new(),
        };
        let (mut page, mut last, mut reads) = (Page::default(), after, 0);
        while page.tasks.len() < query.limit {
            if let Some((position, id, item)) = list.next() {
                last = Some(position);
                let blobs = BlobMap::new();
                let partitions = &entry.partitions;
                let row = self.decode_with_blobs(context, partitions, &id, item, blobs, false);
                let task = match row.await {
                    Ok(Some(row)) => Some(row.task),
                    Ok(None) => {
                        let row = self.load(context, partitions, &id).await?;
                        row.map(|row| Arc::unwrap_or_clone(row).task)
                    }
                    // One unreadable task does not hide the others.
                    Err(StoreError::Corrupt(_)) => None,
                    Err(error) => return Err(error),
                };
                page.tasks.extend(task.filter(|task| matches(task, query)));
                continue;
            }
            let known_to = list.known_to();
            let has_progress = match (known_to, after) {
                (Some(known), Some((at, _))) => known > at * list.sign(),
                (Some(known), None) => known > i64::MIN + millis(BEHIND_MAX),
                (None, _) => true,
            };
            if reads >= READS_MAX && has_progress {
                break;
            }
            if !self.read_shard(context, &mut list).await? {
                break;
            }
            reads += 1;
        }
        let more = !list.waiting.is_empty() || list.known_to().is_some();
        if more {
            // A page without a task ends at the time up to which everything is known.
            let known = list.known_to().map(|known| {
                let id = if descending { [255; 16] } else { [0; 16] };
                (known * list.sign(), TaskId::from_bytes(id))
            });
            let end = if page.tasks.is_empty() {
                known.or(last)
            } else {
                last
            };
            page.next = end.map(|end| cursor(end, descending));
        }
        Ok(page)
    }

    /// Reads a page of the shard that holds the list up, and its tasks. `false` when all were read.
    async fn read_shard(
        &self,
        context: CallContext<'_>,
        list: &mut DueList<'_>,
    ) -> Result<bool, StoreError> {
        let (descending, after) = (list.descending, list.after);
        let Some(shard) = list.next_shard() else {
            return Ok(false);
        };
        let range = match (after, descending) {
            (None, _) => SortRange::All,
            (Some((at, _)), false) => SortRange::From(num(at.saturating_sub(millis(BEHIND_MAX)))),
            (Some((at, _)), true) => SortRange::Below(num(at.saturating_add(1))),
        };
        let request = QueryRequest {
            partition: &shard.partition,
            due: true,
            range,
            newest_first: descending,
            limit: Some(shard.limit),
            after: shard.after.take(),
            ..QueryRequest::default()
        };
        let page = self.table.query(context, request).await?;
        shard.ended = page.next.is_none();
        shard.after = page.next;
        shard.limit = (shard.limit * 2).min(ENTRIES.1);
        if let Some(hint) = page.items.iter().rev().find_map(row::hint) {
            shard.read_to = Some(Timestamp::millis(hint));
        }
        let keys: Vec<_> = page.items.iter().filter_map(ItemKey::of).collect();
        let found = self.table.get_many(context, &keys, &[], true).await?;
        let mut found: HashMap<TaskId, Item> = found
            .into_iter()
            .filter_map(|item| Some((ItemKey::of(&item)?.task()?, item)))
            .collect();
        for id in keys.iter().filter_map(ItemKey::task) {
            if let Some(item) = found.remove(&id) {
                list.add(id, item);
            }
        }
        Ok(true)
    }
}

fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_024_a_cursor_belongs_to_its_order() {
        let position = (1_700_000_000_000, TaskId::from_bytes([7; 16]));
        for descending in [false, true] {
            let text = cursor(position, descending);
            assert_eq!(parse_cursor(&text, descending).ok(), Some(position));
            assert!(parse_cursor(&text, !descending).is_err());
        }
    }
}
