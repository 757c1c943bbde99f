//! Submits with an idempotency key: the key and the task come in one transaction.

use std::sync::Arc;

use dueline_domain::{Task, TaskId};
use dueline_ports::StoreError;

use crate::{
    attr::{self, Bad, Item, get_bytes, need},
    calls::{Condition, For, Key, TRIES_MAX, Transacted, Write, pause},
    create::Standing,
    jobs::Entry,
    row::Row,
    store::Inner,
};

/// Names the task of a key.
pub(crate) const TASK: &str = "i";

impl Inner {
    /// Writes a task with its key; answers what stands in the way, if anything does.
    pub(crate) async fn put_keyed(
        &self,
        of: For<'_>,
        entry: &Entry,
        key: &Arc<str>,
        row: &Row,
        item: Item,
    ) -> Result<Option<Standing>, StoreError> {
        let (home, id) = (&entry.home, row.task.id);
        let key = Key::new(home.of_key(key), key.as_bytes());
        let mut key_item = key.item();
        key_item.insert(TASK.into(), attr::bytes(id.as_bytes()));
        let mut held_by: Option<TaskId> = None;
        for tries in 0..TRIES_MAX {
            let condition = match held_by {
                None => Condition::Absent,
                Some(old) => Condition::Is(TASK, attr::bytes(old.as_bytes())),
            };
            let mut writes = vec![
                Write::Put(key_item.clone(), Some(condition)),
                Write::Put(item.clone(), Some(Condition::Absent)),
            ];
            // A key is taken over only from a task that is gone.
            if let Some(old) = held_by.filter(|old| *old != id) {
                let old = Key::new(home.of(&old), old.as_bytes());
                writes.push(Write::Check(old, Condition::Absent));
            }
            let mut reasons = match self.table.transact(of, &writes).await? {
                Transacted::Done => return Ok(None),
                Transacted::Refused(reasons) => reasons.into_iter(),
            };
            let (key_refused, task_refused) = (reasons.next(), reasons.next());
            // The id goes before the key: a submit repeated under its id is that task.
            if let Some(reason) = task_refused.filter(|reason| reason.refused) {
                return Ok(Some(reason.item.map_or(Standing::Unknown, Standing::Item)));
            }
            held_by = match key_refused
                .filter(|reason| reason.refused)
                .and_then(|r| r.item)
            {
                Some(item) => Some(holder(&item).map_err(|bad| bad.of("an idempotency key"))?),
                None => None,
            };
            if let Some(old) = held_by
                && let Some(row) = self.load(of, home, &old).await?
            {
                return Ok(Some(Standing::Row(row)));
            }
            if tries > 0 {
                pause(tries).await;
            }
        }
        Err(StoreError::Throttled)
    }
}

impl Inner {
    /// The task that has a key.
    pub(crate) async fn keyed(
        &self,
        entry: &Entry,
        key: &Arc<str>,
    ) -> Result<Option<Task>, StoreError> {
        let (home, of) = (&entry.home, For::job(entry.home.job.as_str(), "list"));
        let place = Key::new(home.of_key(key), key.as_bytes());
        let Some(item) = self.table.get(of, &place, true).await? else {
            return Ok(None);
        };
        let id = holder(&item).map_err(|bad| bad.of("an idempotency key"))?;
        let row = self.load(of, home, &id).await?;
        Ok(row.map(|row| Arc::unwrap_or_clone(row).task))
    }
}

/// The task that a key's item names.
pub(crate) fn holder(item: &Item) -> Result<TaskId, Bad> {
    let id = need(get_bytes(item, TASK)?, TASK)?;
    let id = id
        .try_into()
        .map_err(|_| Bad::new("an id has not 16 bytes"))?;
    Ok(TaskId::from_bytes(id))
}
