//! All unfinished tasks: ready and owned ones. The index has them all.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use dueline_domain::{JobName, TaskRef, Timestamp, WorkerId};
use dueline_ports::{OwnedTask, StoreError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    attr::{get_num, num},
    calls::{Ask, For, Key, Range},
    jobs::Entry,
    parts,
    row::{self, Letter, Parts, Row},
    schema,
    store::Inner,
};

/// Most tasks of one job that are gone through for those that are ready.
const READY_MAX: usize = 50_000;
/// The same for those that are owned, on each side of [`HINTS_BEHIND`].
const OWNED_MAX: usize = 2_000;
/// Hints of tasks that are owned lie up to two minutes behind: a claim or a heartbeat moves those that are further back.
/// What waits in a queue stands where it was put, before them. Before them too are tasks whose leases lapsed long ago.
const HINTS_BEHIND: Duration = Duration::from_secs(300);
/// Jobs whose owned tasks are looked for side by side.
const JOBS_AT_ONCE: usize = 8;
/// Tasks fetched at once.
const PIECE: usize = 1_000;

impl Inner {
    pub(crate) async fn ready(
        &self,
        job: &JobName,
        limit: usize,
    ) -> Result<Vec<TaskRef>, StoreError> {
        let jobs = self.jobs(false).await?;
        let Some(entry) = jobs.get(job) else {
            return Ok(Vec::new());
        };
        let mut ready = BTreeMap::new();
        let keep = |row: Row, place: i64| {
            if let Some(message) = row.task.message() {
                let submitted = (row.task.created_at, place, message.id);
                let order = (Reverse(message.priority), message.due_at, submitted);
                ready.insert(order, message);
                if ready.len() > limit {
                    ready.pop_last();
                }
            }
        };
        let of = For::job(job.as_str(), "ready");
        self.each_unfinished(of, entry, &[Range::All], READY_MAX, true, keep)
            .await?;
        Ok(ready.into_values().collect())
    }

    pub(crate) async fn owned(
        &self,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        let jobs = self.jobs(false).await?;
        let entries: Vec<_> = jobs.iter().cloned().collect();
        let of_jobs: Vec<_> = stream::iter(entries)
            .map(|entry| Box::pin(async move { self.owned_of(&entry, now, worker).await }))
            .buffer_unordered(JOBS_AT_ONCE)
            .try_collect()
            .await?;
        Ok(of_jobs.into_iter().flatten().collect())
    }

    async fn owned_of(
        &self,
        entry: &Entry,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        let job = &entry.home.job;
        let behind = i64::try_from(HINTS_BEHIND.as_millis()).unwrap_or(0);
        let from = num(now.millis().saturating_sub(behind));
        let ranges = [Range::From(from.clone()), Range::Below(from)];
        let mut owned = Vec::new();
        let keep = |row: Row, _| {
            let task = row.task;
            let (Some(lease), Some(token)) = (task.lease(), task.state.token()) else {
                return;
            };
            if worker.is_none_or(|worker| *worker == lease.worker) {
                owned.push(OwnedTask {
                    job: job.clone(),
                    id: task.id,
                    kind: task.kind(),
                    token,
                    worker: lease.worker.clone(),
                });
            }
        };
        // Whatever has moved since is refused by its token, so half the price will do.
        self.each_unfinished(
            For::job(job.as_str(), "owned"),
            entry,
            &ranges,
            OWNED_MAX,
            false,
            keep,
        )
        .await?;
        Ok(owned)
    }

    /// Goes through the unfinished tasks of a job, about `max` of each range, those that may be due soonest first. Their
    /// bodies may be empty.
    async fn each_unfinished(
        &self,
        of: For<'_>,
        entry: &Entry,
        ranges: &[Range],
        max: usize,
        consistent: bool,
        mut keep: impl FnMut(Row, i64) + Send,
    ) -> Result<(), StoreError> {
        let home = &entry.home;
        let mut keys = Vec::new();
        // Each shard has its part of those that come first.
        let of_shard = max.div_ceil(usize::try_from(entry.shards).unwrap_or(1).max(1));
        for shard in 0..entry.shards {
            let partition = home.due(shard);
            for range in ranges {
                let ask = Ask {
                    partition: &partition,
                    due: true,
                    range: range.clone(),
                    only: &[schema::PK, schema::SK],
                    ..Ask::default()
                };
                let entries = self.table.query_all(of, ask, of_shard).await?;
                keys.extend(entries.iter().take(of_shard).filter_map(Key::of));
            }
        }
        for keys in keys.chunks(PIECE) {
            for item in self.table.get_many(of, keys, &[], consistent).await? {
                let Some(id) = Key::of(&item).and_then(|key| key.task()) else {
                    continue;
                };
                let mut at_hand = Parts::new();
                let mut extras = row::refs(&item);
                extras.retain(|part| part.letter == Letter::Extras);
                parts::fetch(
                    &self.table,
                    of,
                    &home.of(&id),
                    &id,
                    &extras,
                    &mut at_hand,
                    true,
                )
                .await?;
                let place = get_num(&item, row::name::PLACE).ok().flatten().unwrap_or(0);
                match row::read(&home.job, id, item, &at_hand, true) {
                    Ok(row) => keep(row, place),
                    Err(bad) => drop(self.corrupt(of, &id, bad)),
                }
            }
        }
        Ok(())
    }
}
