//! `list`: reads every slot from one end, and merges the slots by id.

use std::{collections::VecDeque, sync::Arc};

use dueline_domain::{ScheduleName, Task, TaskId};
use dueline_ports::{ListQuery, Page, StoreError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    attr::{self, Item, get_bytes},
    blobs,
    calls::{CallContext, QueryRequest, SortRange},
    jobs::JobEntry,
    row::BlobMap,
    schema,
    store::DynamoStore,
};

/// Most pages that one call reads, over all slots. A filter that few tasks match then gives a short page.
const READS_MAX: usize = 96;
/// Slots that are read at once.
const CONCURRENT_READS: usize = 16;
/// Prefixes of cursors of this format, by whether the order is descending.
const fn prefix(descending: bool) -> &'static str {
    if descending { "d1." } else { "d4." }
}

/// Reads the tasks of one slot, newest or oldest first.
#[derive(Default)]
struct SlotReader {
    number: u16,
    /// Tasks that were read and not listed yet; `None` for an unreadable one.
    buffered: VecDeque<(TaskId, Option<Box<Task>>)>,
    /// Blobs that were read. In descending order they come before their task, in ascending order after it.
    blobs: BlobMap,
    after: Option<Item>,
    is_read: bool,
    limit: usize,
}

impl SlotReader {
    fn at_end(&self) -> bool {
        self.is_read && self.after.is_none()
    }

    fn needs_more(&self) -> bool {
        self.buffered.is_empty() && !self.at_end()
    }
}

impl DynamoStore {
    pub(crate) async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        let jobs = self.jobs(false).await?;
        let entry = jobs
            .get(&query.job)
            .ok_or_else(|| StoreError::no_job(&query.job))?;
        let descending = query.order.is_descending();
        // At most one task has a key, so its list needs no order.
        if query.order.is_by_due_time() && query.key.is_none() {
            return self.list_due(entry, &query).await;
        }
        let cursor_of = |text| parse_cursor(text, descending);
        let after = query.cursor.as_deref().map(cursor_of).transpose()?;
        if let Some(key) = &query.key {
            // At most one task has a key, and the item of the key names it.
            let found = self.task_by_key(entry, key).await?;
            let is_after_cursor = |task: &Task| after.is_none_or(|after| task.id != after);
            let found = found.filter(|task| is_after_cursor(task) && matches(task, &query));
            return Ok(Page {
                tasks: found.into_iter().collect(),
                next: None,
            });
        }
        let share = query.limit / usize::from(self.slots.max(1));
        let mut slots: Vec<SlotReader> = (0..self.slots)
            .map(|number| SlotReader {
                number,
                limit: share + share / 2 + 4,
                ..SlotReader::default()
            })
            .collect();
        let (mut page, mut last, mut reads) = (Page::default(), after, 0);
        while page.tasks.len() < query.limit {
            let empty: Vec<&mut SlotReader> =
                slots.iter_mut().filter(|slot| slot.needs_more()).collect();
            if !empty.is_empty() {
                // The cursor is the last task listed, so a page that ends here loses nothing.
                if reads >= READS_MAX {
                    break;
                }
                reads += empty.len();
                self.read_slots(entry, after, descending, empty).await?;
                continue;
            }
            let filled = slots.iter_mut().filter(|slot| !slot.buffered.is_empty());
            let first = |slot: &&mut SlotReader| slot.buffered.front().map(|(id, _)| *id);
            let next = match descending {
                true => filled.max_by_key(first),
                false => filled.min_by_key(first),
            };
            let Some((id, task)) = next.and_then(|slot| slot.buffered.pop_front()) else {
                break;
            };
            last = Some(id);
            page.tasks
                .extend(task.filter(|task| matches(task, &query)).map(|task| *task));
        }
        let more = slots
            .iter()
            .any(|slot| !slot.buffered.is_empty() || !slot.at_end());
        page.next = last.filter(|_| more).map(|id| cursor(&id, descending));
        if more && page.next.is_none() {
            // All reads of this call listed no task, and there was no cursor: the next call begins there as well.
            let start = if descending { [255; 16] } else { [0; 16] };
            page.next = Some(cursor(&TaskId::from_bytes(start), descending));
        }
        Ok(page)
    }

    async fn read_slots(
        &self,
        entry: &JobEntry,
        after: Option<TaskId>,
        descending: bool,
        slots: Vec<&mut SlotReader>,
    ) -> Result<(), StoreError> {
        let reads = slots
            .into_iter()
            .map(|slot| Box::pin(self.read_slot(entry, after, descending, slot)));
        let reads: Vec<_> = reads.collect();
        let mut reading = stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        while reading.try_next().await?.is_some() {}
        Ok(())
    }

    async fn read_slot(
        &self,
        entry: &JobEntry,
        after: Option<TaskId>,
        descending: bool,
        slot: &mut SlotReader,
    ) -> Result<(), StoreError> {
        let partitions = &entry.partitions;
        let context = CallContext::of_job(partitions.job.as_str(), "list");
        let partition = partitions.tasks(slot.number);
        let range = after.map_or(SortRange::All, |id| match descending {
            true => SortRange::Below(attr::bytes(id.as_bytes())),
            // Behind the blobs of the task.
            false => SortRange::From(attr::bytes(following(&id))),
        });
        let request = QueryRequest {
            partition: &partition,
            range,
            newest_first: descending,
            limit: Some(slot.limit),
            after: slot.after.take(),
            consistent: true,
            ..QueryRequest::default()
        };
        let page = self.table.query(context, request).await?;
        slot.is_read = true;
        slot.after = page.next;
        slot.limit = (slot.limit * 2).min(1_000);
        // In ascending order a task is complete when the next one begins.
        let mut open: Option<(TaskId, Item)> = None;
        for item in page.items {
            let key = get_bytes(&item, schema::SK)
                .ok()
                .flatten()
                .unwrap_or_default();
            let Some((id, _)) = blobs::split_key(key) else {
                continue;
            };
            if !blobs::is_task(key) {
                slot.blobs.extend(blobs::blob_of(&item));
                continue;
            }
            let complete = match descending {
                true => Some((id, item)),
                false => open.replace((id, item)),
            };
            if let Some((id, item)) = complete {
                self.buffer(context, entry, slot, id, item).await?;
            }
        }
        if let Some((id, item)) = open {
            self.buffer(context, entry, slot, id, item).await?;
        }
        Ok(())
    }

    /// Decodes a task with the blobs that were read. Usually these are all; a missing one is fetched.
    async fn buffer(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        slot: &mut SlotReader,
        id: TaskId,
        item: Item,
    ) -> Result<(), StoreError> {
        let partitions = &entry.partitions;
        let blobs = std::mem::take(&mut slot.blobs);
        let row = self.decode_with_blobs(context, partitions, &id, item, blobs, false);
        let task = match row.await {
            Ok(Some(row)) => Some(row.task),
            Ok(None) => self
                .load(context, partitions, &id)
                .await?
                .map(|row| Arc::unwrap_or_clone(row).task),
            Err(StoreError::Corrupt(_)) => None,
            Err(error) => return Err(error),
        };
        slot.buffered.push_back((id, task.map(Box::new)));
        Ok(())
    }
}

fn cursor(id: &TaskId, descending: bool) -> Arc<str> {
    format!("{}{id}", prefix(descending)).into()
}

fn parse_cursor(text: &str, descending: bool) -> Result<TaskId, StoreError> {
    let id = text.strip_prefix(prefix(descending)).map(TaskId::parse);
    match id {
        Some(Ok(id)) => Ok(id),
        _ => Err(StoreError::Invalid(
            "cursor was not made by a list in this order".into(),
        )),
    }
}

/// The id behind this one.
fn following(id: &TaskId) -> [u8; 16] {
    u128::from_be_bytes(*id.as_bytes())
        .saturating_add(1)
        .to_be_bytes()
}

/// Whether a task matches the filters of a query.
pub(crate) fn matches(task: &Task, query: &ListQuery) -> bool {
    let options = task.options.as_deref();
    let is = |wanted: &Option<Arc<str>>, found: Option<&Arc<str>>| {
        wanted.as_ref().is_none_or(|wanted| found == Some(wanted))
    };
    let tagged = |tag: &Arc<str>| options.is_some_and(|options| options.tags.contains(tag));
    let firing = options.and_then(|options| options.firing.as_ref());
    let fired = |schedule: &ScheduleName| firing.is_some_and(|firing| firing.schedule == *schedule);
    (query.states.is_empty() || query.states.contains(&task.kind()))
        && is(
            &query.name,
            options.and_then(|options| options.name.as_ref()),
        )
        && is(&query.key, options.and_then(|options| options.key.as_ref()))
        && query.tag.as_ref().is_none_or(tagged)
        && query.schedule.as_ref().is_none_or(fired)
        && query.due_from.is_none_or(|from| task.run_at >= from)
        && query.due_before.is_none_or(|before| task.run_at < before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_parsed_and_a_foreign_one_refused() {
        let id = TaskId::from_bytes([9; 16]);
        for descending in [true, false] {
            let text = cursor(&id, descending);
            assert_eq!(parse_cursor(&text, descending).ok(), Some(id));
            assert!(parse_cursor(&text, !descending).is_err());
        }
        for foreign in [
            "",
            "d1.",
            "d2.09090909-0909-0909-0909-090909090909",
            "17",
            &id.to_string(),
        ] {
            assert!(parse_cursor(foreign, true).is_err(), "{foreign}");
        }
    }
}
