//! Finished tasks past their retention, and parts that nobody refers to.

use dueline_domain::TaskId;
use dueline_ports::StoreError;
use tokio::time::Duration;

use super::Budget;
use crate::{
    attr::{self, Item, get_bytes, get_num, get_text, id_bytes},
    calls::{Ask, Condition, Conditional, For, Key},
    jobs::Entry,
    keyed,
    parts::{self, WRITTEN},
    row::{self, PartRef, name},
    schema,
    store::Inner,
};

/// A part that nobody refers to may be on its way: its task is written after it.
const ORPHAN_AGE: Duration = Duration::from_secs(3_600);

/// A part with the task it belongs to.
struct Loose {
    id: TaskId,
    part: PartRef,
}

impl Inner {
    /// Prunes one page of a slot; answers where to go on.
    pub(super) async fn prune_tasks(
        &self,
        entry: &Entry,
        slot: u16,
        after: Option<Item>,
        budget: &mut Budget,
    ) -> Result<Option<Item>, StoreError> {
        let of = For::job(entry.home.job.as_str(), "prune");
        let partition = entry.home.tasks(slot);
        let ask = Ask {
            partition: &partition,
            after,
            ..Ask::default()
        };
        let page = self.table.query(of, ask).await?;
        budget.reads += 1;
        budget.units += page.read_units;
        let mut loose = Vec::new();
        let mut current: Option<(TaskId, Vec<PartRef>)> = None;
        for item in &page.items {
            let Some(key) = get_bytes(item, schema::SK).ok().flatten() else {
                continue;
            };
            let Some((id, part)) = parts::split(key) else {
                continue;
            };
            if parts::is_task(key) {
                if budget.room() == 0 {
                    // The next call begins with this very task: it is not passed yet.
                    let place = current.map(|(id, _)| last_of(&partition, &id));
                    self.drop_loose(of, &partition, loose).await?;
                    return Ok(Some(place.unwrap_or_else(|| before(&partition, &id))));
                }
                current = Some((id, row::refs(item)));
                if self.outlived(entry, item, budget) && self.remove(of, entry, &id, item).await? {
                    budget.deleted += 1;
                }
                continue;
            }
            let written = get_num(item, WRITTEN).ok().flatten().unwrap_or(0);
            let is_old =
                written + i64::try_from(ORPHAN_AGE.as_millis()).unwrap_or(0) <= budget.now.millis();
            let in_use = current.as_ref().is_some_and(|(owner, refs)| {
                *owner == id && part.is_some_and(|part| refs.contains(&part))
            });
            if let Some(part) = part.filter(|_| is_old && !in_use) {
                loose.push(Loose { id, part });
            }
        }
        self.drop_loose(of, &partition, loose).await?;
        Ok(page.next)
    }

    fn outlived(&self, entry: &Entry, item: &Item, budget: &Budget) -> bool {
        let finished_at = get_num(item, name::FINISHED).ok().flatten();
        let retention = entry.job.policy.retention;
        finished_at.zip(retention).is_some_and(|(at, retention)| {
            dueline_domain::Timestamp::clamped(at).after(retention) <= budget.now
        })
    }

    /// Removes a task unless somebody has put it back, then its parts and its key.
    async fn remove(
        &self,
        of: For<'_>,
        entry: &Entry,
        id: &TaskId,
        item: &Item,
    ) -> Result<bool, StoreError> {
        let (home, partition) = (&entry.home, entry.home.of(id));
        let Ok(write) = row::write_of(item) else {
            return Ok(false);
        };
        let unchanged = Condition::Is(name::WRITE, id_bytes(write.to_stored()));
        let key = Key::new(&partition, id.as_bytes());
        let outcome = self.table.delete(of, &key, Some(unchanged)).await?;
        if !matches!(outcome, Conditional::Done) {
            return Ok(false);
        }
        parts::delete(&self.table, of, &partition, id, &row::refs(item)).await;
        if let Some(key) = get_text(item, name::KEY).ok().flatten() {
            let key = Key::new(home.of_key(key), key.as_bytes());
            let ours = Condition::Is(keyed::TASK, attr::bytes(id.as_bytes()));
            self.table.delete(of, &key, Some(ours)).await?;
        }
        Ok(true)
    }

    /// Deletes parts that still have no task that refers to them, looked at with a read that is certain.
    async fn drop_loose(
        &self,
        of: For<'_>,
        partition: &str,
        loose: Vec<Loose>,
    ) -> Result<(), StoreError> {
        let mut at = 0;
        while let Some(Loose { id, .. }) = loose.get(at) {
            let same = loose[at..].iter().take_while(|other| other.id == *id);
            let mut names: Vec<_> = same.map(|other| other.part).collect();
            at += names.len();
            let task = self
                .table
                .get(of, &Key::new(partition, id.as_bytes()), true)
                .await?;
            let in_use = parts::set(task.as_ref().map(row::refs).unwrap_or_default());
            names.retain(|part| !in_use.contains(part));
            parts::delete(&self.table, of, partition, id, &names).await;
        }
        Ok(())
    }
}

/// The place behind a task and all its parts.
fn last_of(partition: &str, id: &TaskId) -> Item {
    let mut key = id.as_bytes().to_vec();
    key.extend([255; 8]);
    Key::new(partition, key).item()
}

/// The place before a task.
fn before(partition: &str, id: &TaskId) -> Item {
    let mut key = *id.as_bytes();
    // The largest key below: the next lower id, with parts that it cannot have.
    for byte in key.iter_mut().rev() {
        let (lower, borrowed) = byte.overflowing_sub(1);
        *byte = lower;
        if !borrowed {
            break;
        }
    }
    last_of(partition, &TaskId::from_bytes(key))
}
