//! A look at one partition of the index.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use dueline_domain::{TaskId, Timestamp};
use dueline_ports::StoreError;
use tokio::time::Duration;

use super::{Examined, Looked, memory::Place};
use crate::{
    attr::{Item, num, text},
    calls::{Ask, For, Key, Range},
    hint,
    jobs::Entry,
    row, schema,
    store::Inner,
};

/// Entries of one look, beyond which the rest waits for the next one.
const ENTRIES_MAX: usize = 2_000;
/// Entries of one look at a backlog whose tasks nobody wants, because the job is paused.
const UNWANTED_MAX: usize = 200;
/// Entries of one step of the walk over a whole backlog.
const SWEPT_MAX: usize = 500;
/// Entries of the first page: what costs the least that a query can cost.
const FIRST_PAGE: usize = 20;
/// Entries that may come into the index this late are still seen while a backlog is read.
const OVERLAP: Duration = Duration::from_secs(15);
/// How far back a reader begins that comes to a backlog: hints of owned tasks lie up to two minutes behind.
const NEW_FRONT_MS: i64 = 300_000;
/// A partition that was empty for this long is looked at less often.
const IDLE_AFTER: Duration = Duration::from_secs(30);

/// An entry of the index.
#[derive(Clone, Debug)]
struct Pointer {
    id: TaskId,
    hint: Timestamp,
    partition: String,
}

fn pointer(item: &Item) -> Option<Pointer> {
    let key = Key::of(item)?;
    Some(Pointer {
        id: key.task()?,
        hint: row::hint(item)?,
        partition: key.pk,
    })
}

/// A stretch of the index.
#[derive(Default)]
struct Stretch {
    past: Vec<Pointer>,
    /// The first entry of the future.
    future: Option<Timestamp>,
    /// Where it was cut off; `None` when it came to the future or to the end.
    cut_at: Option<Item>,
}

impl Pointer {
    /// Where a reading that goes on behind this entry begins.
    fn place(&self, due_key: &str) -> Item {
        let mut item = Key::new(&self.partition, self.id.as_bytes()).item();
        item.insert(schema::DUE_KEY.into(), text(due_key));
        item.insert(schema::DUE_HINT.into(), num(self.hint.millis()));
        item
    }
}

/// A piece of a backlog, in the order of the index.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) partition: Arc<str>,
    start: Option<Item>,
    pointers: Vec<Pointer>,
}

impl Piece {
    /// Where reading goes on so that no task in `hidden` is passed; `None` if there is none of them here.
    pub(super) fn back_to(&self, hidden: &BTreeSet<TaskId>) -> Option<Option<Item>> {
        let first = self
            .pointers
            .iter()
            .position(|pointer| hidden.contains(&pointer.id))?;
        let behind = first
            .checked_sub(1)
            .and_then(|before| self.pointers.get(before));
        Some(match behind {
            Some(pointer) => Some(pointer.place(&self.partition)),
            None => self.start.clone(),
        })
    }
}

impl Inner {
    /// Looks at a partition. When its tasks are not wanted, only those that a worker owns matter, and a long backlog
    /// is walked slowly.
    pub(super) async fn look(
        &self,
        entry: &Entry,
        shard: u32,
        now: Timestamp,
        wanted: bool,
    ) -> Result<Looked, StoreError> {
        let partition: Arc<str> = entry.home.due(shard).into();
        let mut place = self.watch.place(&partition);
        let before = place.clone();
        if self.may_wait(&place, now) {
            return Ok(Looked::default());
        }
        let of = For::job(entry.home.job.as_str(), "due");
        let start = place.head.take();
        let in_backlog = start.is_some();
        let most = if in_backlog && !wanted {
            UNWANTED_MAX
        } else {
            ENTRIES_MAX
        };
        let stretch = self
            .read(of, &partition, Range::All, start.clone(), now, most)
            .await?;
        let mut pointers = stretch.past;
        let mut ripened = Vec::new();
        let mut looked = Looked::default();
        if let Some(at) = stretch.future {
            looked.later(at);
        }
        if stretch.cut_at.is_some() {
            looked.pieces.push(Piece {
                partition: partition.clone(),
                start,
                pointers: pointers.clone(),
            });
        }
        if in_backlog || stretch.cut_at.is_some() {
            // While a backlog is read piece by piece, what comes up now must not wait for its end.
            let overlap = i64::try_from(OVERLAP.as_millis()).unwrap_or(0);
            // A reader that is new here knows nothing of what others have read: it begins where the hints of owned tasks
            // may lie.
            let front = place
                .front
                .map_or(now.millis() - NEW_FRONT_MS, |front| front.min(now).millis());
            let since = front - overlap;
            let from = place.front_at.take();
            let range = if from.is_some() {
                Range::All
            } else {
                Range::From(num(since.max(0)))
            };
            let front = self
                .read(of, &partition, range, from, now, ENTRIES_MAX)
                .await?;
            if front.cut_at.is_none() {
                place.front = Some(now);
            }
            place.front_at = front.cut_at;
            if let Some(at) = front.future {
                looked.later(at);
            }
            let mut sweep = Stretch::default();
            if in_backlog {
                let from = place.sweep.take();
                sweep = self
                    .read(of, &partition, Range::All, from, now, SWEPT_MAX)
                    .await?;
            }
            place.sweep = sweep.cut_at;
            ripened = self.watch.ripe(&entry.home, &partition, now, ENTRIES_MAX);
            let ripe = ripened.iter().copied().map(|(id, hint)| Pointer {
                id,
                hint,
                partition: entry.home.of(&id),
            });
            pointers.extend(front.past.into_iter().chain(sweep.past).chain(ripe));
            let mut seen = BTreeSet::new();
            pointers.retain(|pointer| seen.insert(pointer.id));
        }
        let is_empty = pointers.is_empty() && looked.next_at.is_none() && !in_backlog;
        place.head = stretch.cut_at;
        place.empty_since = is_empty.then(|| place.empty_since.unwrap_or(now));
        place.looked_at = Some(now);
        self.watch.keep_place(&partition, place);
        let examined = self.examine(of, entry, &partition, now, pointers, &mut looked);
        if let Err(error) = examined.await {
            // What was read and not looked at must come again.
            self.watch.keep_place(&partition, before);
            self.watch.ripen_again(&partition, &ripened, now);
            return Err(error);
        }
        Ok(looked)
    }

    /// Whether a partition that was empty for a while need not be looked at this time.
    fn may_wait(&self, place: &Place, now: Timestamp) -> bool {
        let (Some(empty_since), Some(looked_at)) = (place.empty_since, place.looked_at) else {
            return false;
        };
        // A clock that stepped back must not keep anybody waiting.
        now >= looked_at
            && now.since(empty_since) >= IDLE_AFTER
            && now.since(looked_at) < self.options.idle_poll
    }

    /// Reads entries in order, up to the first one of the future or a bound. An empty page is no end.
    async fn read(
        &self,
        of: For<'_>,
        partition: &str,
        range: Range,
        mut after: Option<Item>,
        now: Timestamp,
        most: usize,
    ) -> Result<Stretch, StoreError> {
        let mut stretch = Stretch::default();
        let mut limit = FIRST_PAGE;
        loop {
            let ask = Ask {
                partition,
                due: true,
                range: range.clone(),
                limit: Some(limit),
                after: after.take(),
                ..Ask::default()
            };
            let page = self.table.query(of, ask).await?;
            for item in &page.items {
                let Some(pointer) = pointer(item) else {
                    continue;
                };
                if pointer.hint > now {
                    stretch.future = Some(pointer.hint);
                    return Ok(stretch);
                }
                stretch.past.push(pointer);
            }
            after = page.next;
            if after.is_none() || stretch.past.len() >= most {
                stretch.cut_at = after;
                return Ok(stretch);
            }
            limit = (limit * 10).min(most - stretch.past.len()).max(1);
        }
    }

    /// Finds out what the tasks behind the entries are. An entry whose task is gone or finished is old: it is passed.
    async fn examine(
        &self,
        of: For<'_>,
        entry: &Entry,
        partition: &Arc<str>,
        now: Timestamp,
        pointers: Vec<Pointer>,
        looked: &mut Looked,
    ) -> Result<(), StoreError> {
        let (home, mut unknown) = (&entry.home, HashMap::new());
        let again = hint::look_again(&entry.job.policy, pointers.len());
        for pointer in pointers {
            match self.watch.recall(home, &pointer.id, pointer.hint, now) {
                Some(task) if task.trigger_at <= now => looked.due.push(task),
                Some(task) => looked.later(task.trigger_at),
                None => drop(unknown.insert(pointer.id, pointer)),
            }
        }
        let mut ids: Vec<_> = unknown.keys().copied().collect();
        ids.sort_unstable();
        let keys: Vec<_> = ids
            .iter()
            .filter_map(|id| unknown.get(id))
            .map(|pointer| Key::new(&pointer.partition, pointer.id.as_bytes()))
            .collect();
        for item in self.table.get_many(of, &keys, &[], false).await? {
            let id = Key::of(&item).and_then(|key| key.task());
            let Some(pointer) = id.and_then(|id| unknown.get(&id)) else {
                continue;
            };
            let (kind, trigger_at) = match row::moment(&item) {
                Ok((kind, Some(trigger_at))) => (kind, trigger_at),
                Ok(_) => continue,
                Err(bad) => {
                    self.corrupt(of, &pointer.id, bad);
                    continue;
                }
            };
            let task = Examined {
                trigger_at,
                id: pointer.id,
                kind,
            };
            let until = if trigger_at <= now {
                looked.due.push(task);
                // A command follows, and this saves it a read. What it decides from it holds only if it is current.
                if row::refs(&item).is_empty()
                    && let Ok(row) =
                        row::read(&home.job, pointer.id, item, &row::Parts::new(), false)
                {
                    self.written.put(&pointer.partition, Arc::new(row));
                }
                // Due: only taken for that again if nobody wants it now.
                now
            } else {
                looked.later(trigger_at);
                trigger_at.min(now.after(again))
            };
            self.watch
                .remember(home, partition, pointer.hint, task, until);
        }
        Ok(())
    }
}
