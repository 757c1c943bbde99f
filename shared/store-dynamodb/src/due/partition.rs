//! The scan of one partition of the due index.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use dueline_domain::{TaskId, Timestamp};
use dueline_ports::StoreError;
use tokio::time::Duration;

use super::{CheckedTask, ScanResult, memory::DueCursor};
use crate::{
    attr::{Item, num, text},
    calls::{CallContext, ItemKey, QueryRequest, SortRange},
    hint,
    jobs::JobEntry,
    load::Bodies,
    row, schema,
    store::DynamoStore,
};

/// Most entries that the forward scan reads; the others wait for the next scan.
const ENTRIES_MAX: usize = 2_000;
/// The same for a backlog whose pending tasks are not wanted because the job is paused.
const UNWANTED_ENTRIES_MAX: usize = 200;
/// Entries that the sweep reads per scan.
const SWEEP_ENTRIES_MAX: usize = 500;
/// Entries of the first page: about as many as the smallest charge of a query covers.
const FIRST_PAGE: usize = 20;
/// How much later than its hint an entry may appear in the index and still be read by the front.
const FRONT_OVERLAP: Duration = Duration::from_secs(15);
/// How far in the past the front begins for a reader that is new to a backlog: hints of owned tasks are up to two
/// minutes behind.
const FIRST_FRONT_MS: i64 = 300_000;
/// A partition that was empty for this long is scanned only once per idle poll.
const IDLE_AFTER: Duration = Duration::from_secs(30);

/// An entry of the index.
#[derive(Clone, Debug)]
pub(super) struct DueEntry {
    id: TaskId,
    hint: Timestamp,
    /// The partition of the task itself.
    partition: String,
}

fn due_entry(item: &Item) -> Option<DueEntry> {
    let key = ItemKey::of(item)?;
    Some(DueEntry {
        id: key.task()?,
        hint: row::hint(item)?,
        partition: key.pk,
    })
}

/// Consecutive entries of the index.
#[derive(Default)]
pub(super) struct IndexSlice {
    /// Entries whose hint has passed.
    pub(super) entries: Vec<DueEntry>,
    /// The hint of the first entry in the future.
    pub(super) next_hint: Option<Timestamp>,
    /// Where the rest begins; `None` when the reading came to the future or to the end.
    pub(super) cut_at: Option<Item>,
}

impl DueEntry {
    /// The position of this entry, from which a query can go on.
    fn position(&self, due_key: &str) -> Item {
        let mut item = ItemKey::new(&self.partition, self.id.as_bytes()).item();
        item.insert(schema::DUE_KEY.into(), text(due_key));
        item.insert(schema::DUE_HINT.into(), num(self.hint.millis()));
        item
    }
}

/// A chunk of a backlog, in the order of the index.
#[derive(Debug)]
pub(super) struct BacklogChunk {
    pub(super) partition: Arc<str>,
    start: Option<Item>,
    entries: Vec<DueEntry>,
}

impl BacklogChunk {
    /// Where the forward scan has to go on so that it passes none of the tasks that a limit held back; `None` if this
    /// chunk contains none of them.
    pub(super) fn start_before(&self, held_back: &BTreeSet<TaskId>) -> Option<Option<Item>> {
        let first = self
            .entries
            .iter()
            .position(|entry| held_back.contains(&entry.id))?;
        let before = first
            .checked_sub(1)
            .and_then(|before| self.entries.get(before));
        Some(match before {
            Some(entry) => Some(entry.position(&self.partition)),
            None => self.start.clone(),
        })
    }
}

impl DynamoStore {
    /// Scans a partition for due tasks. When `wants_pending` is false, only owned tasks matter, and a long backlog is
    /// read slowly.
    pub(super) async fn scan_partition(
        &self,
        entry: &JobEntry,
        shard: u32,
        now: Timestamp,
        wants_pending: bool,
    ) -> Result<ScanResult, StoreError> {
        let partition: Arc<str> = entry.partitions.due(shard).into();
        let mut cursor = self.due_memory.cursor(&partition);
        let old_cursor = cursor.clone();
        if self.may_skip(&cursor, now) {
            return Ok(ScanResult::default());
        }
        let context = CallContext::of_job(entry.partitions.job.as_str(), "due");
        let start = cursor.backlog_at.take();
        let in_backlog = start.is_some();
        let entries_max = if in_backlog && !wants_pending {
            UNWANTED_ENTRIES_MAX
        } else {
            ENTRIES_MAX
        };
        let (all, from) = (SortRange::All, start.clone());
        let forward = self
            .read_index(context, &partition, all, from, now, entries_max)
            .await?;
        let mut entries = forward.entries;
        let mut rechecks = Vec::new();
        let mut result = ScanResult::default();
        if let Some(at) = forward.next_hint {
            result.add_next(at);
        }
        if forward.cut_at.is_some() {
            result.chunks.push(BacklogChunk {
                partition: partition.clone(),
                start,
                entries: entries.clone(),
            });
        }
        if in_backlog || forward.cut_at.is_some() {
            // Tasks that become due now must not wait until the backlog has been read to its end.
            let overlap = i64::try_from(FRONT_OVERLAP.as_millis()).unwrap_or(0);
            // A reader without a front begins early enough for the hints of owned tasks.
            let front = cursor.front.map_or(now.millis() - FIRST_FRONT_MS, |front| {
                front.min(now).millis()
            });
            let since = front - overlap;
            let from = cursor.front_at.take();
            let range = if from.is_some() {
                SortRange::All
            } else {
                SortRange::From(num(since.max(0)))
            };
            let front = self
                .read_index(context, &partition, range, from, now, ENTRIES_MAX)
                .await?;
            if front.cut_at.is_none() {
                cursor.front = Some(now);
            }
            cursor.front_at = front.cut_at;
            if let Some(at) = front.next_hint {
                result.add_next(at);
            }
            let mut sweep = IndexSlice::default();
            if in_backlog {
                let (all, from) = (SortRange::All, cursor.sweep_at.take());
                sweep = self
                    .read_index(context, &partition, all, from, now, SWEEP_ENTRIES_MAX)
                    .await?;
            }
            cursor.sweep_at = sweep.cut_at;
            rechecks =
                self.due_memory
                    .take_rechecks(&entry.partitions, &partition, now, ENTRIES_MAX);
            let rechecked = rechecks.iter().copied().map(|(id, hint)| DueEntry {
                id,
                hint,
                partition: entry.partitions.of_task(&id),
            });
            entries.extend(
                front
                    .entries
                    .into_iter()
                    .chain(sweep.entries)
                    .chain(rechecked),
            );
            let mut unique = BTreeSet::new();
            entries.retain(|entry| unique.insert(entry.id));
        }
        let is_empty = entries.is_empty() && result.next_at.is_none() && !in_backlog;
        cursor.backlog_at = forward.cut_at;
        cursor.empty_since = is_empty.then(|| cursor.empty_since.unwrap_or(now));
        cursor.scanned_at = Some(now);
        self.due_memory.set_cursor(&partition, cursor);
        let checked = self.check_entries(context, entry, &partition, now, entries, &mut result);
        if let Err(error) = checked.await {
            // The next scan has to read the same entries again.
            self.due_memory.set_cursor(&partition, old_cursor);
            self.due_memory.return_rechecks(&partition, &rechecks, now);
            return Err(error);
        }
        Ok(result)
    }

    /// Whether this scan may skip a partition, because it has been empty for a while and its idle poll is not due.
    fn may_skip(&self, cursor: &DueCursor, now: Timestamp) -> bool {
        let (Some(empty_since), Some(scanned_at)) = (cursor.empty_since, cursor.scanned_at) else {
            return false;
        };
        // When the clock was set back, the partition is not skipped.
        now >= scanned_at
            && now.since(empty_since) >= IDLE_AFTER
            && now.since(scanned_at) < self.options.idle_poll
    }

    /// Reads entries in the order of the index, up to the first one in the future or to about `entries_max`. An empty
    /// page is not the end.
    pub(super) async fn read_index(
        &self,
        context: CallContext<'_>,
        partition: &str,
        range: SortRange,
        mut after: Option<Item>,
        now: Timestamp,
        entries_max: usize,
    ) -> Result<IndexSlice, StoreError> {
        let mut slice = IndexSlice::default();
        let mut limit = FIRST_PAGE;
        loop {
            let request = QueryRequest {
                partition,
                due: true,
                range: range.clone(),
                limit: Some(limit),
                after: after.take(),
                ..QueryRequest::default()
            };
            let page = self.table.query(context, request).await?;
            for item in &page.items {
                let Some(entry) = due_entry(item) else {
                    continue;
                };
                if entry.hint > now {
                    slice.next_hint = Some(entry.hint);
                    return Ok(slice);
                }
                slice.entries.push(entry);
            }
            after = page.next;
            if after.is_none() || slice.entries.len() >= entries_max {
                slice.cut_at = after;
                return Ok(slice);
            }
            limit = (limit * 10).min(entries_max - slice.entries.len()).max(1);
        }
    }

    /// Checks the tasks of the entries and adds the due ones to the result. An entry whose task is missing or finished
    /// is stale and is skipped.
    pub(super) async fn check_entries(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        partition: &Arc<str>,
        now: Timestamp,
        entries: Vec<DueEntry>,
        result: &mut ScanResult,
    ) -> Result<(), StoreError> {
        let (partitions, mut unknown) = (&entry.partitions, HashMap::new());
        let recheck_after = hint::recheck_after(&entry.job.policy, entries.len());
        for entry in entries {
            match self
                .due_memory
                .recall(partitions, &entry.id, entry.hint, now)
            {
                Some(task) if task.trigger_at <= now => result.due.push(task),
                Some(task) => result.add_next(task.trigger_at),
                None => drop(unknown.insert(entry.id, entry)),
            }
        }
        let mut ids: Vec<_> = unknown.keys().copied().collect();
        ids.sort_unstable();
        let keys: Vec<_> = ids
            .iter()
            .filter_map(|id| unknown.get(id))
            .map(|entry| ItemKey::new(&entry.partition, entry.id.as_bytes()))
            .collect();
        for item in self.table.get_many(context, &keys, &[], false).await? {
            let id = ItemKey::of(&item).and_then(|key| key.task());
            let Some(entry) = id.and_then(|id| unknown.get(&id)) else {
                continue;
            };
            let (kind, trigger_at) = match row::state_and_trigger(&item) {
                Ok((kind, Some(trigger_at))) => (kind, trigger_at),
                Ok(_) => continue,
                Err(invalid) => {
                    self.report_unreadable(context, &entry.id, invalid);
                    continue;
                }
            };
            let priority = row::priority(&item);
            let task = CheckedTask::new(entry.id, kind, priority, trigger_at);
            let until = if trigger_at <= now {
                result.due.push(task);
                // The caller will send a command for this task, and the cached row saves its read. The row may be old:
                // the condition of the command's write fails then.
                let bodies = Bodies::Inline.known(&item);
                if row::blob_refs(&item).len() == bodies.len()
                    && let Ok(row) = row::decode(&partitions.job, entry.id, item, &bodies, false)
                {
                    self.row_cache.put(&entry.partition, Arc::new(row));
                }
                // The memory of a due task is only valid if a limit holds it back: `hold_back` extends it then.
                now
            } else {
                result.add_next(trigger_at);
                trigger_at.min(now.after(recheck_after))
            };
            self.due_memory
                .remember(partitions, partition, entry.hint, task, until);
        }
        Ok(())
    }
}
