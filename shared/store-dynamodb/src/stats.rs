//! `stats`: counts the tasks of a job by state.

use std::{collections::HashMap, sync::PoisonError};

use dueline_domain::JobName;
use dueline_ports::{JobStats, StoreError};
use tokio::time::{Duration, Instant};

use crate::{
    attr::Item,
    calls::{CallContext, ItemKey, QueryRequest},
    jobs::JobEntry,
    row, schema,
    store::DynamoStore,
};

/// Most tasks that are counted.
const TASKS_MAX: usize = 100_000;
/// The counts of a job with more tasks than this are cached, because counting reads all tasks.
const UNCACHED_TASKS_MAX: u64 = 2_000;
/// Time to live of cached counts for each thousand tasks, so that frequent calls read no more than rare ones.
const TTL_PER_THOUSAND: Duration = Duration::from_secs(1);

/// Cached counts, by job and generation.
pub(crate) type StatsCache = HashMap<String, (Instant, JobStats)>;

fn time_to_live(stats: &JobStats) -> Duration {
    let total: u64 = stats.by_state.values().sum();
    if total <= UNCACHED_TASKS_MAX {
        return Duration::ZERO;
    }
    TTL_PER_THOUSAND * u32::try_from(total / 1_000).unwrap_or(u32::MAX).min(60)
}

impl DynamoStore {
    pub(crate) async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        let jobs = self.jobs(false).await?;
        let entry = jobs.get(job).ok_or_else(|| StoreError::no_job(job))?;
        let name = entry.partitions.due(0);
        let now = Instant::now();
        let cache = || {
            self.stats_cache
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let age = |at: &Instant| now.saturating_duration_since(*at);
        if let Some((at, stats)) = cache().get(&name)
            && age(at) < time_to_live(stats)
        {
            return Ok(JobStats {
                age: age(at),
                ..stats.clone()
            });
        }
        let stats = self.count(entry).await?;
        let mut cache = cache();
        cache.retain(|_, (at, stats)| age(at) < time_to_live(stats));
        if !time_to_live(&stats).is_zero() {
            cache.insert(name, (now, stats.clone()));
        }
        Ok(stats)
    }

    async fn count(&self, entry: &JobEntry) -> Result<JobStats, StoreError> {
        let context = CallContext::of_job(entry.partitions.job.as_str(), "stats");
        let mut stats = JobStats::default();
        let mut left = TASKS_MAX;
        for slot in 0..self.slots {
            let partition = entry.partitions.tasks(slot);
            let request = QueryRequest {
                partition: &partition,
                newest_first: true,
                consistent: true,
                attributes: row::STATE_AND_TRIGGER,
                with_attribute: Some(row::name::STATE),
                ..QueryRequest::default()
            };
            let items = self.table.query_all(context, request, left).await?;
            left = left.saturating_sub(items.len());
            items.iter().for_each(|item| add(&mut stats, item));
            if left == 0 {
                self.count_unfinished(context, entry, &mut stats).await?;
                stats.partial = true;
                return Ok(stats);
            }
        }
        Ok(stats)
    }

    /// Counts the unfinished tasks by the index, which contains only those. Used when there are too many tasks to read
    /// them all.
    async fn count_unfinished(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        stats: &mut JobStats,
    ) -> Result<(), StoreError> {
        stats.by_state.retain(|kind, _| kind.is_final());
        stats.oldest_due_at = None;
        let mut left = TASKS_MAX;
        let mut partitions = self.lane_partitions(context, entry).await?;
        partitions.extend((0..entry.shards).map(|shard| entry.partitions.due(shard)));
        for partition in partitions {
            let request = QueryRequest {
                partition: &partition,
                due: true,
                attributes: &[schema::PK, schema::SK],
                ..QueryRequest::default()
            };
            let entries = self.table.query_all(context, request, left).await?;
            left = left.saturating_sub(entries.len());
            let keys: Vec<_> = entries.iter().filter_map(ItemKey::of).collect();
            for item in self
                .table
                .get_many(context, &keys, row::STATE_AND_TRIGGER, false)
                .await?
            {
                // The task of a stale entry may have finished meanwhile; it was counted with its slot.
                if !matches!(row::state_and_trigger(&item), Ok((kind, _)) if kind.is_final()) {
                    add(stats, &item);
                }
            }
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}

fn add(stats: &mut JobStats, item: &Item) {
    let Ok((kind, trigger_at)) = row::state_and_trigger(item) else {
        return;
    };
    *stats.by_state.entry(kind).or_default() += 1;
    if kind.is_pending()
        && let Some(at) = trigger_at
    {
        stats.oldest_due_at = Some(stats.oldest_due_at.map_or(at, |oldest| oldest.min(at)));
    }
}
