//! Numbers about a job.

use std::{collections::HashMap, sync::PoisonError};

use dueline_domain::{JobName, StateKind, Timestamp};
use dueline_ports::{JobStats, StoreError};
use tokio::time::{Duration, Instant};

use crate::{
    attr::Bad,
    calls::{Ask, For, Key},
    jobs::Entry,
    row, schema,
    store::Inner,
};

/// Most tasks that are counted.
const TASKS_MAX: usize = 100_000;
/// Numbers of a job with more tasks than this are kept for a while, because counting reads them all.
const CHEAP_MAX: u64 = 2_000;
/// For each thousand tasks the numbers are kept this long, so that looking often costs no more than looking once.
const KEPT_FOR_PER_THOUSAND: Duration = Duration::from_secs(1);

/// Numbers counted lately, by job and generation.
pub(crate) type Counted = HashMap<String, (Instant, JobStats)>;

fn kept_for(stats: &JobStats) -> Duration {
    let total: u64 = stats.by_state.values().sum();
    if total <= CHEAP_MAX {
        return Duration::ZERO;
    }
    KEPT_FOR_PER_THOUSAND * u32::try_from(total / 1_000).unwrap_or(u32::MAX).min(60)
}

impl Inner {
    pub(crate) async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        let jobs = self.jobs(false).await?;
        let entry = jobs.get(job).ok_or_else(|| StoreError::no_job(job))?;
        let name = entry.home.due(0);
        let now = Instant::now();
        let counted = || self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let age = |at: &Instant| now.saturating_duration_since(*at);
        if let Some((at, stats)) = counted().get(&name)
            && age(at) < kept_for(stats)
        {
            return Ok(JobStats {
                age: age(at),
                ..stats.clone()
            });
        }
        let stats = self.count(entry).await?;
        let mut counted = counted();
        counted.retain(|_, (at, stats)| age(at) < kept_for(stats));
        if !kept_for(&stats).is_zero() {
            counted.insert(name, (now, stats.clone()));
        }
        Ok(stats)
    }

    async fn count(&self, entry: &Entry) -> Result<JobStats, StoreError> {
        let of = For::job(entry.home.job.as_str(), "stats");
        let mut stats = JobStats::default();
        let mut left = TASKS_MAX;
        for slot in 0..self.slots {
            let partition = entry.home.tasks(slot);
            let ask = Ask {
                partition: &partition,
                newest_first: true,
                consistent: true,
                only: row::MOMENT,
                having: Some(row::name::STATE),
                ..Ask::default()
            };
            let items = self.table.query_all(of, ask, left).await?;
            left = left.saturating_sub(items.len());
            items.iter().for_each(|item| add(&mut stats, item));
            if left == 0 {
                self.count_unfinished(of, entry, &mut stats).await?;
                return Ok(partial(stats));
            }
        }
        Ok(stats)
    }

    /// There are too many tasks: those that have not ended are counted all the same, because the index has only them.
    async fn count_unfinished(
        &self,
        of: For<'_>,
        entry: &Entry,
        stats: &mut JobStats,
    ) -> Result<(), StoreError> {
        stats.by_state.retain(|kind, _| kind.is_final());
        stats.oldest_due_at = None;
        let mut left = TASKS_MAX;
        for shard in 0..entry.shards {
            let partition = entry.home.due(shard);
            let ask = Ask {
                partition: &partition,
                due: true,
                only: &[schema::PK, schema::SK],
                ..Ask::default()
            };
            let entries = self.table.query_all(of, ask, left).await?;
            left = left.saturating_sub(entries.len());
            let keys: Vec<_> = entries.iter().filter_map(Key::of).collect();
            for item in self.table.get_many(of, &keys, row::MOMENT, false).await? {
                // An entry may be older than its task: that one was counted where it ended.
                if !matches!(row::moment(&item), Ok((kind, _)) if kind.is_final()) {
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

fn add(stats: &mut JobStats, item: &crate::attr::Item) {
    let moment: Result<(StateKind, Option<Timestamp>), Bad> = row::moment(item);
    let Ok((kind, trigger_at)) = moment else {
        return;
    };
    *stats.by_state.entry(kind).or_default() += 1;
    if kind.is_pending()
        && let Some(at) = trigger_at
    {
        stats.oldest_due_at = Some(stats.oldest_due_at.map_or(at, |oldest| oldest.min(at)));
    }
}

/// Says so when not all tasks were counted.
fn partial(stats: JobStats) -> JobStats {
    JobStats {
        partial: true,
        ..stats
    }
}
