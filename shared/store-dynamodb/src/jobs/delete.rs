//! `delete_job`: deletes a definition that has no unfinished tasks.

use dueline_domain::JobName;
use dueline_ports::StoreError;

use super::{DELETING, JobEntry, put};
use crate::{
    calls::{
        CallContext, ItemKey, QueryRequest, TRIES_MAX, TransactionOutcome, TransactionWrite, pause,
    },
    row, schema,
    store::DynamoStore,
};
use aws_sdk_dynamodb::types::AttributeValue;

/// Most unfinished tasks that are counted for the error.
const COUNTED_MAX: usize = 100_000;
/// Newest tasks of each slot that are read themselves, because the index may not show them yet.
const NEWEST: usize = 50;

impl DynamoStore {
    /// Deletes the definition. Its finished tasks cannot be read any more; the pruner deletes them later.
    pub(crate) async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        for tries in 0..TRIES_MAX {
            let jobs = self.jobs(true).await?;
            let entry = jobs.get(name).ok_or_else(|| StoreError::no_job(name))?;
            if !entry.deleting {
                let deleting = (DELETING.into(), AttributeValue::Bool(true));
                if !self
                    .change_jobs("delete_job", entry.changed(vec![deleting], &[]))
                    .await?
                {
                    pause(tries).await;
                    continue;
                }
            }
            // A process that reads the definitions from now on accepts no task for this job. Wait until the snapshots
            // of all processes have expired.
            tokio::time::sleep(self.job_cache.ttl * 2).await;
            let jobs = self.jobs(true).await?;
            let entry = jobs.get(name).ok_or_else(|| StoreError::no_job(name))?;
            if !entry.deleting {
                continue;
            }
            let has_schedules = self.has_schedules(entry).await;
            if !matches!(has_schedules, Ok(false)) {
                self.change_jobs("delete_job", entry.changed(Vec::new(), &[DELETING]))
                    .await?;
                has_schedules?;
                return Err(StoreError::HasSchedules(name.clone()));
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

    async fn remove_job(&self, entry: &JobEntry) -> Result<bool, StoreError> {
        let partitions = &entry.partitions;
        let deleted = format!("{}#{}", partitions.job, partitions.generation);
        let writes = [
            TransactionWrite::Put(ItemKey::new(schema::DELETED_JOBS, deleted).item(), None),
            TransactionWrite::Delete(put::key(&partitions.job), entry.unchanged()),
            put::count_change(),
        ];
        let outcome = self
            .table
            .transact(CallContext::of_table("delete_job"), &writes)
            .await?;
        self.refresh_jobs().await;
        Ok(matches!(outcome, TransactionOutcome::Done))
    }

    /// How many tasks are unfinished. They are counted in the index, which is eventually consistent, so the newest
    /// tasks of each slot are read themselves.
    async fn unfinished(&self, entry: &JobEntry) -> Result<u64, StoreError> {
        let context = CallContext::of_job(entry.partitions.job.as_str(), "delete_job");
        let mut indexed = std::collections::BTreeSet::new();
        let mut partitions = self.lane_partitions(context, entry).await?;
        partitions.extend((0..entry.shards).map(|shard| entry.partitions.due(shard)));
        for partition in partitions {
            let request = QueryRequest {
                partition: &partition,
                due: true,
                attributes: &[schema::PK, schema::SK],
                ..QueryRequest::default()
            };
            let left = COUNTED_MAX.saturating_sub(indexed.len());
            let found = self.table.query_all(context, request, left).await?;
            indexed.extend(found.iter().filter_map(|item| ItemKey::of(item)?.task()));
        }
        for slot in 0..self.slots {
            let partition = entry.partitions.tasks(slot);
            let request = QueryRequest {
                partition: &partition,
                newest_first: true,
                limit: Some(NEWEST),
                consistent: true,
                attributes: &[schema::PK, schema::SK, row::name::STATE, schema::DUE_KEY],
                ..QueryRequest::default()
            };
            for item in self.table.query(context, request).await?.items {
                let Some(id) = ItemKey::of(&item).and_then(|key| key.task()) else {
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
