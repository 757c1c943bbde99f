//! `ready` and `owned`: unfinished tasks, all of which are in the due index.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use dueline_domain::{JobName, TaskRef, Timestamp, WorkerId};
use dueline_ports::{OwnedTask, StoreError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    attr::{get_num, num},
    blobs,
    calls::{CallContext, ItemKey, QueryRequest, SortRange},
    jobs::JobEntry,
    row::{self, BlobKind, BlobMap, TaskRow},
    schema,
    store::DynamoStore,
};

/// Most unfinished tasks of one job that are read to find the ready ones.
const READY_SCANNED_MAX: usize = 50_000;
/// The same to find the owned ones, for each of the ranges before and after [`OWNED_HINTS_BEHIND`].
const OWNED_SCANNED_MAX: usize = 2_000;
/// Hints of owned tasks are at most this far in the past: a claim or a heartbeat moves a hint that is more than two
/// minutes behind. Older hints are those of enqueued tasks, which do not move, and of tasks whose leases lapsed long
/// ago.
const OWNED_HINTS_BEHIND: Duration = Duration::from_secs(300);
/// Jobs whose owned tasks are read at once.
const CONCURRENT_JOBS: usize = 8;
/// Tasks that are fetched at once.
const FETCH_BATCH: usize = 1_000;

impl DynamoStore {
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
        let add = |row: TaskRow, submit_number: i64| {
            if let Some(message) = row.task.message() {
                let submitted = (row.task.created_at, submit_number, message.id);
                let order = (Reverse(message.priority), message.due_at, submitted);
                ready.insert(order, message);
                if ready.len() > limit {
                    ready.pop_last();
                }
            }
        };
        let context = CallContext::of_job(job.as_str(), "ready");
        self.each_unfinished(
            context,
            entry,
            &[SortRange::All],
            READY_SCANNED_MAX,
            true,
            add,
        )
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
            .buffer_unordered(CONCURRENT_JOBS)
            .try_collect()
            .await?;
        Ok(of_jobs.into_iter().flatten().collect())
    }

    async fn owned_of(
        &self,
        entry: &JobEntry,
        now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        let job = &entry.partitions.job;
        let behind = i64::try_from(OWNED_HINTS_BEHIND.as_millis()).unwrap_or(0);
        let from = num(now.millis().saturating_sub(behind));
        let ranges = [SortRange::From(from.clone()), SortRange::Below(from)];
        let mut owned = Vec::new();
        let add = |row: TaskRow, _| {
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
        // An eventually consistent read, at half the cost, is enough: a command for a task that has changed since is
        // refused by its token.
        self.each_unfinished(
            CallContext::of_job(job.as_str(), "owned"),
            entry,
            &ranges,
            OWNED_SCANNED_MAX,
            false,
            add,
        )
        .await?;
        Ok(owned)
    }

    /// Calls `add` for the unfinished tasks of a job, about `max` of each range, those with the earliest hints first.
    /// Blobs other than options are not fetched, so payloads, results and errors may be missing.
    async fn each_unfinished(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        ranges: &[SortRange],
        max: usize,
        consistent: bool,
        mut add: impl FnMut(TaskRow, i64) + Send,
    ) -> Result<(), StoreError> {
        let partitions = &entry.partitions;
        let mut keys = Vec::new();
        let per_shard = max.div_ceil(usize::try_from(entry.shards).unwrap_or(1).max(1));
        for shard in 0..entry.shards {
            let partition = partitions.due(shard);
            for range in ranges {
                let request = QueryRequest {
                    partition: &partition,
                    due: true,
                    range: range.clone(),
                    attributes: &[schema::PK, schema::SK],
                    ..QueryRequest::default()
                };
                let entries = self.table.query_all(context, request, per_shard).await?;
                keys.extend(entries.iter().take(per_shard).filter_map(ItemKey::of));
            }
        }
        for keys in keys.chunks(FETCH_BATCH) {
            for item in self.table.get_many(context, keys, &[], consistent).await? {
                let Some(id) = ItemKey::of(&item).and_then(|key| key.task()) else {
                    continue;
                };
                let mut blobs = BlobMap::new();
                let mut options = row::blob_refs(&item);
                options.retain(|blob| blob.kind == BlobKind::TaskOptions);
                blobs::fetch(
                    &self.table,
                    context,
                    &partitions.of_task(&id),
                    &id,
                    &options,
                    &mut blobs,
                    true,
                )
                .await?;
                let number = get_num(&item, row::name::SUBMIT_NUMBER);
                let number = number.ok().flatten().unwrap_or(0);
                match row::decode(&partitions.job, id, item, &blobs, true) {
                    Ok(row) => add(row, number),
                    Err(invalid) => drop(self.report_unreadable(context, &id, invalid)),
                }
            }
        }
        Ok(())
    }
}
