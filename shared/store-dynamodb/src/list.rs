//! Lists: every slot from its newest task down, merged by id.

use std::{collections::VecDeque, sync::Arc};

use dueline_domain::{Task, TaskId};
use dueline_ports::{ListQuery, Page, StoreError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    attr::{self, Item, get_bytes},
    calls::{Ask, For, Range},
    jobs::Entry,
    parts,
    row::Parts,
    schema,
    store::Inner,
};

/// Pages of all slots together that one call may read. A filter that few tasks meet gives a short page then.
const READS_MAX: usize = 96;
/// Slots read at once.
const SIDE_BY_SIDE: usize = 16;
/// Marks the layout of our cursors.
const CURSOR: &str = "d1.";

/// What was read of one slot and not yet listed.
#[derive(Default)]
struct Slot {
    number: u16,
    waiting: VecDeque<(TaskId, Option<Box<Task>>)>,
    /// Parts come before their task, because the newest comes first.
    parts: Parts,
    after: Option<Item>,
    is_read: bool,
    limit: usize,
}

impl Slot {
    fn at_end(&self) -> bool {
        self.is_read && self.after.is_none()
    }

    fn needs_more(&self) -> bool {
        self.waiting.is_empty() && !self.at_end()
    }
}

impl Inner {
    pub(crate) async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        let jobs = self.jobs(false).await?;
        let entry = jobs
            .get(&query.job)
            .ok_or_else(|| StoreError::no_job(&query.job))?;
        let before = query.cursor.as_deref().map(parse_cursor).transpose()?;
        if let Some(key) = &query.key {
            // Never more than one task has a key, and its item names it.
            let found = self.keyed(entry, key).await?;
            let is_ahead = |task: &Task| before.is_none_or(|before| task.id < before);
            let found = found.filter(|task| is_ahead(task) && is_wanted(task, &query));
            return Ok(Page {
                tasks: found.into_iter().collect(),
                next: None,
            });
        }
        let share = query.limit / usize::from(self.slots.max(1));
        let mut slots: Vec<Slot> = (0..self.slots)
            .map(|number| Slot {
                number,
                limit: share + share / 2 + 4,
                ..Slot::default()
            })
            .collect();
        let (mut page, mut last, mut reads) = (Page::default(), before, 0);
        while page.tasks.len() < query.limit {
            let short: Vec<&mut Slot> = slots.iter_mut().filter(|slot| slot.needs_more()).collect();
            if !short.is_empty() {
                // Nothing behind what was listed is lost by stopping here.
                if reads >= READS_MAX {
                    break;
                }
                reads += short.len();
                self.read_slots(entry, before, short).await?;
                continue;
            }
            let newest = slots
                .iter_mut()
                .max_by_key(|slot| slot.waiting.front().map(|(id, _)| *id));
            let Some((id, task)) = newest.and_then(|slot| slot.waiting.pop_front()) else {
                break;
            };
            last = Some(id);
            page.tasks.extend(
                task.filter(|task| is_wanted(task, &query))
                    .map(|task| *task),
            );
        }
        let more = slots
            .iter()
            .any(|slot| !slot.waiting.is_empty() || !slot.at_end());
        page.next = last.filter(|_| more).map(|id| cursor(&id));
        if more && page.next.is_none() {
            // Nothing could be listed in as many reads as one call may make, and there was no beginning to go back to.
            page.next = Some(cursor(&TaskId::from_bytes([255; 16])));
        }
        Ok(page)
    }

    async fn read_slots(
        &self,
        entry: &Entry,
        before: Option<TaskId>,
        slots: Vec<&mut Slot>,
    ) -> Result<(), StoreError> {
        let reads = slots
            .into_iter()
            .map(|slot| Box::pin(self.read_slot(entry, before, slot)));
        let reads: Vec<_> = reads.collect();
        let mut reading = stream::iter(reads).buffer_unordered(SIDE_BY_SIDE);
        while reading.try_next().await?.is_some() {}
        Ok(())
    }

    async fn read_slot(
        &self,
        entry: &Entry,
        before: Option<TaskId>,
        slot: &mut Slot,
    ) -> Result<(), StoreError> {
        let home = &entry.home;
        let of = For::job(home.job.as_str(), "list");
        let partition = home.tasks(slot.number);
        let range = before.map_or(Range::All, |id| Range::Below(attr::bytes(id.as_bytes())));
        let ask = Ask {
            partition: &partition,
            range,
            newest_first: true,
            limit: Some(slot.limit),
            after: slot.after.take(),
            consistent: true,
            ..Ask::default()
        };
        let answer = self.table.query(of, ask).await?;
        slot.is_read = true;
        slot.after = answer.next;
        slot.limit = (slot.limit * 2).min(1_000);
        for item in answer.items {
            let key = get_bytes(&item, schema::SK)
                .ok()
                .flatten()
                .unwrap_or_default();
            let Some((id, _)) = parts::split(key) else {
                continue;
            };
            if !parts::is_task(key) {
                slot.parts.extend(parts::part_of(&item));
                continue;
            }
            let at_hand = std::mem::take(&mut slot.parts);
            // Usually all parts are there; one that was written in between is fetched.
            let task = match self.complete(of, home, &id, item, at_hand, false).await {
                Ok(Some(row)) => Some(row.task),
                Ok(None) => self
                    .load(of, home, &id)
                    .await?
                    .map(|row| Arc::unwrap_or_clone(row).task),
                Err(StoreError::Corrupt(_)) => None,
                Err(error) => return Err(error),
            };
            slot.waiting.push_back((id, task.map(Box::new)));
        }
        Ok(())
    }
}

fn cursor(id: &TaskId) -> Arc<str> {
    format!("{CURSOR}{id}").into()
}

fn parse_cursor(text: &str) -> Result<TaskId, StoreError> {
    let id = text.strip_prefix(CURSOR).map(TaskId::parse);
    match id {
        Some(Ok(id)) => Ok(id),
        _ => Err(StoreError::Invalid("cursor is not from this store".into())),
    }
}

fn is_wanted(task: &Task, query: &ListQuery) -> bool {
    let extras = task.extras.as_deref();
    let is = |wanted: &Option<Arc<str>>, found: Option<&Arc<str>>| {
        wanted.as_ref().is_none_or(|wanted| found == Some(wanted))
    };
    let tagged = |tag: &Arc<str>| extras.is_some_and(|extras| extras.tags.contains(tag));
    (query.states.is_empty() || query.states.contains(&task.kind()))
        && is(&query.name, extras.and_then(|extras| extras.name.as_ref()))
        && is(&query.key, extras.and_then(|extras| extras.key.as_ref()))
        && query.tag.as_ref().is_none_or(tagged)
        && query.due_from.is_none_or(|from| task.run_at >= from)
        && query.due_before.is_none_or(|before| task.run_at < before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_and_foreign_ones_are_refused() {
        let id = TaskId::from_bytes([9; 16]);
        assert_eq!(parse_cursor(&cursor(&id)).ok(), Some(id));
        for foreign in [
            "",
            "d1.",
            "d2.09090909-0909-0909-0909-090909090909",
            "17",
            &id.to_string(),
        ] {
            assert!(parse_cursor(foreign).is_err(), "{foreign}");
        }
    }
}
