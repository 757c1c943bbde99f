//! Due tasks: candidates are read from the due index and checked against the tasks themselves.
//!
//! `design.md` in this folder explains the index and how it is read.

mod lanes;
mod memory;
mod partition;

use std::{cmp::Reverse, collections::BTreeMap};

use dueline_domain::{JobName, Priority, StateKind, TaskId, Timestamp};
use dueline_ports::{DuePage, DueQuery, DueTask, StoreError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use self::partition::BacklogChunk;
use crate::{jobs::JobEntry, store::DynamoStore};

pub(crate) use lanes::LaneMemory;
pub(crate) use memory::DueMemory;

/// Partitions of the index that are scanned at once.
const CONCURRENT_SCANS: usize = 16;

/// Priority, state and trigger time of a task, as a scan read them from the task itself. Sorted as the caller gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CheckedTask {
    /// Whether the task is enqueued or waits for other tasks: neither may hide the others.
    comes_last: bool,
    priority: Reverse<Priority>,
    trigger_at: Timestamp,
    id: TaskId,
    kind: StateKind,
}

impl CheckedTask {
    fn new(id: TaskId, kind: StateKind, priority: Priority, trigger_at: Timestamp) -> Self {
        // Finished tasks that owe an effect are sorted by their times alone.
        let priority = if kind.is_final() {
            Priority::default()
        } else {
            priority
        };
        Self {
            comes_last: comes_last(kind),
            priority: Reverse(priority),
            trigger_at,
            id,
            kind,
        }
    }
}

/// Whether due tasks in this state come after all others.
const fn comes_last(kind: StateKind) -> bool {
    matches!(kind, StateKind::Enqueued | StateKind::Waiting)
}

/// The result of a scan of one partition, or of all partitions of one job.
#[derive(Debug, Default)]
struct ScanResult {
    due: Vec<CheckedTask>,
    /// The earliest trigger time to come, or an earlier time.
    next_at: Option<Timestamp>,
    /// Chunks of backlogs: entries with passed hints remain for the next scan.
    chunks: Vec<BacklogChunk>,
}

impl ScanResult {
    /// Takes a future trigger time into account.
    fn add_next(&mut self, at: Timestamp) {
        self.next_at = Some(self.next_at.map_or(at, |next| next.min(at)));
    }

    fn merge(&mut self, other: Self) {
        self.due.extend(other.due);
        self.chunks.extend(other.chunks);
        if let Some(at) = other.next_at {
            self.add_next(at);
        }
    }
}

impl DynamoStore {
    pub(crate) async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        self.due_memory.enable();
        let jobs = self.jobs_or_stale().await?;
        let partitions = jobs.iter().flat_map(|entry| {
            let shards = 0..entry.shards;
            shards.map(move |shard| (entry.clone(), shard))
        });
        let covered: Vec<_> = partitions
            .filter(|(entry, shard)| covers(&query, &entry.partitions.job, *shard))
            .collect();
        let now = query.now;
        let mut scans = stream::iter(covered)
            .map(|(entry, shard)| {
                let wants_pending = query.pending_limits.get(&entry.partitions.job) != Some(&0);
                Box::pin(async move {
                    match self.scan_partition(&entry, shard, now, wants_pending).await {
                        Ok(result) => Ok((entry, Some(result))),
                        // A throttled partition must not hide those of other jobs.
                        Err(StoreError::Throttled) => Ok((entry, None)),
                        Err(error) => Err(error),
                    }
                })
            })
            .buffer_unordered(CONCURRENT_SCANS);
        let (mut scanned, mut throttled) = (0, 0);
        let mut by_job: BTreeMap<JobName, (std::sync::Arc<JobEntry>, ScanResult)> = BTreeMap::new();
        while let Some((entry, result)) = scans.try_next().await? {
            let Some(result) = result else {
                throttled += 1;
                continue;
            };
            scanned += 1;
            let name = entry.partitions.job.clone();
            let (_, merged) = by_job
                .entry(name)
                .or_insert_with(|| (entry, ScanResult::default()));
            merged.merge(result);
        }
        drop(scans);
        if scanned == 0 && throttled > 0 {
            return Err(StoreError::Throttled);
        }
        let mut page = DuePage {
            more: throttled > 0,
            ..DuePage::default()
        };
        for (job, (entry, result)) in by_job {
            self.add_to_page(&query, &job, &entry, result, &mut page);
        }
        Ok(page)
    }

    /// Adds the due tasks of a job to the page, up to the limits. The tasks beyond the limits are remembered as due for
    /// a while, so that the long backlog of a paused job is not fetched again at each scan.
    fn add_to_page(
        &self,
        query: &DueQuery,
        job: &JobName,
        entry: &JobEntry,
        mut result: ScanResult,
        page: &mut DuePage,
    ) {
        let max = query.limit_per_job;
        let pending_limit = query.pending_limits.get(job).copied();
        let pending_max = pending_limit.map_or(max, |limit| limit.min(max));
        result.due.sort_unstable();
        let (mut shown, mut held_back) = (Vec::new(), Vec::new());
        let owed_max = query.owed_limit_of(job);
        let (mut pending, mut owned, mut owed) = (0, 0, 0);
        for task in result.due {
            if task.kind.is_final() {
                owed += 1;
                if owed <= owed_max {
                    page.owed.push(due_task(job, &task));
                } else {
                    held_back.push(task);
                }
                continue;
            }
            let (count, limit) = if task.kind.is_owned() {
                (&mut owned, max)
            } else {
                (&mut pending, pending_max)
            };
            *count += 1;
            if *count <= limit && shown.len() < max {
                shown.push(task);
            } else {
                held_back.push(task);
            }
        }
        // A sweep comes back to tasks that come last. Setting the forward scan back to them would read their backlog again and
        // again.
        let has_more = held_back.iter().any(|task| match task.kind {
            kind if kind.is_final() => false,
            kind if comes_last(kind) && !result.chunks.is_empty() => false,
            kind => kind.is_owned() || pending_max > 0,
        });
        page.more |= has_more || (!result.chunks.is_empty() && !shown.is_empty());
        self.due_memory
            .hold_back(&entry.partitions, &held_back, query.now);
        if has_more {
            let held_back = held_back.iter().map(|task| task.id).collect();
            for chunk in &result.chunks {
                if let Some(backlog_at) = chunk.start_before(&held_back) {
                    self.due_memory.rewind(&chunk.partition, backlog_at);
                }
            }
        }
        page.tasks
            .extend(shown.iter().map(|task| due_task(job, task)));
        page.next_at = page.next_at.into_iter().chain(result.next_at).min();
    }
}

fn due_task(job: &JobName, task: &CheckedTask) -> DueTask {
    DueTask {
        job: job.clone(),
        id: task.id,
        kind: task.kind,
        trigger_at: task.trigger_at,
    }
}

/// Whether the caller's share covers this partition.
fn covers(query: &DueQuery, job: &JobName, shard: u32) -> bool {
    let share = query.share.as_ref();
    share.is_none_or(|share| share.covers(job, shard))
}
