//! Definitions that go.

use dueline_domain::JobName;
use dueline_ports::StoreError;

use super::{DELETING, Entry, put};
use crate::{
    calls::{Ask, For, Key, TRIES_MAX, Transacted, Write, pause},
    row, schema,
    store::Inner,
};
use aws_sdk_dynamodb::types::AttributeValue;

/// Unfinished tasks that are counted: nobody who wants to delete a job needs the rest.
const COUNTED_MAX: usize = 100_000;
/// Newest tasks of a slot that are looked at before the index is believed.
const NEWEST: usize = 50;

impl Inner {
    /// The definition goes; what is left of its finished tasks is not reachable any more and goes with the pruner.
    pub(crate) async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        for tries in 0..TRIES_MAX {
            let jobs = self.jobs(true).await?;
            let entry = jobs.get(name).ok_or_else(|| StoreError::no_job(name))?;
            if !entry.deleting {
                let mark = (DELETING.into(), AttributeValue::Bool(true));
                if !self
                    .change_jobs("delete_job", entry.changed(vec![mark], &[]))
                    .await?
                {
                    pause(tries).await;
                    continue;
                }
            }
            // From here on nobody who looks takes a task for it; wait until everybody has looked.
            tokio::time::sleep(self.jobs.ttl * 2).await;
            let jobs = self.jobs(true).await?;
            let entry = jobs.get(name).ok_or_else(|| StoreError::no_job(name))?;
            if !entry.deleting {
                continue;
            }
            let unfinished = self.unfinished(entry).await;
            if !matches!(unfinished, Ok(0)) {
                self.change_jobs("delete_job", entry.changed(Vec::new(), &[DELETING]))
                    .await?;
                let job = name.clone();
                let unfinished = unfinished?;
                return Err(StoreError::InUse { job, unfinished });
            }
            if self.remove_job(entry).await? {
                return Ok(());
            }
            pause(tries).await;
        }
        Err(StoreError::Throttled)
    }

    async fn remove_job(&self, entry: &Entry) -> Result<bool, StoreError> {
        let home = &entry.home;
        let gone = format!("{}#{}", home.job, home.generation);
        let writes = [
            Write::Put(Key::new(schema::GONE, gone).item(), None),
            Write::Delete(put::key(&home.job), entry.unchanged()),
            put::raise(),
        ];
        let outcome = self.table.transact(For::all("delete_job"), &writes).await?;
        self.know_anew().await;
        Ok(matches!(outcome, Transacted::Done))
    }

    /// How many tasks have not ended. The index says so, but it may be a moment behind: the newest tasks of each slot
    /// are looked at themselves.
    async fn unfinished(&self, entry: &Entry) -> Result<u64, StoreError> {
        let of = For::job(entry.home.job.as_str(), "delete_job");
        let mut indexed = std::collections::BTreeSet::new();
        for shard in 0..entry.shards {
            let partition = entry.home.due(shard);
            let ask = Ask {
                partition: &partition,
                due: true,
                only: &[schema::PK, schema::SK],
                ..Ask::default()
            };
            let left = COUNTED_MAX.saturating_sub(indexed.len());
            let found = self.table.query_all(of, ask, left).await?;
            indexed.extend(found.iter().filter_map(|item| Key::of(item)?.task()));
        }
        for slot in 0..self.slots {
            let partition = entry.home.tasks(slot);
            let ask = Ask {
                partition: &partition,
                newest_first: true,
                limit: Some(NEWEST),
                consistent: true,
                only: &[schema::PK, schema::SK, row::name::STATE, schema::DUE_KEY],
                ..Ask::default()
            };
            for item in self.table.query(of, ask).await?.items {
                let Some(id) = Key::of(&item).and_then(|key| key.task()) else {
                    continue;
                };
                if item.contains_key(schema::DUE_KEY) {
                    indexed.insert(id);
                } else {
                    indexed.remove(&id);
                }
            }
        }
        Ok(indexed.len() as u64)
    }
}
