//! Limits on running tasks: how many tasks of a job may be enqueued or owned at once.
//!
//! A task gets its place from the store before it is enqueued, because several consumers may enqueue tasks of one job. While
//! all places of a job are taken, its waiting tasks are not read: the consumer looks again when a task of the job ends in
//! this process, and otherwise after a short time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use dueline_domain::{Job, JobName, TaskId, Timestamp};
use dueline_ports::{DueTask, Store, TakePlaces};
use dueline_runtime::DueSignal;
use tokio::time::Instant;

/// Time after which the places of a job are read again, unless the end of a task is noticed before.
const LOOK_AFTER: Duration = Duration::from_millis(200);

/// The jobs of this consumer that have a limit and tasks above it.
#[derive(Debug, Default)]
pub(crate) struct RunningLimits {
    /// Jobs whose places were all taken, each with the time of the next look.
    full: BTreeMap<JobName, Instant>,
}

impl RunningLimits {
    /// Lowers how many pending tasks to read: none of a job whose places are taken, and no more than the limit of others.
    pub(crate) fn limit(
        &mut self,
        limits: &mut BTreeMap<JobName, usize>,
        jobs: &[Arc<Job>],
        due: &DueSignal,
        now: Instant,
    ) {
        let mut known = std::mem::take(&mut self.full);
        for job in jobs {
            let Some(max) = limit_of(job) else {
                continue;
            };
            let allowed = match known.remove(&job.name) {
                Some(look_at) if look_at > now && due.awaits_place(&job.name) => {
                    self.full.insert(job.name.clone(), look_at);
                    0
                }
                Some(_) => {
                    due.forget_place(&job.name);
                    max
                }
                None => max,
            };
            let limit = limits.entry(job.name.clone()).or_insert(allowed);
            *limit = (*limit).min(allowed);
        }
        for job in known.keys() {
            due.forget_place(job);
        }
    }

    /// Gets places for the pending tasks that a scan has found, in their order. Returns the tasks that got none.
    pub(crate) async fn take_places(
        &mut self,
        store: &dyn Store,
        due: &DueSignal,
        jobs: &BTreeMap<&JobName, &Arc<Job>>,
        pending: impl Iterator<Item = &DueTask>,
        now: Timestamp,
    ) -> BTreeSet<TaskId> {
        let mut wanted: BTreeMap<&JobName, Vec<(TaskId, Timestamp)>> = BTreeMap::new();
        for task in pending {
            if jobs
                .get(&task.job)
                .is_some_and(|job| limit_of(job).is_some())
            {
                let tasks = wanted.entry(&task.job).or_default();
                tasks.push((task.id, task.trigger_at));
            }
        }
        let mut refused = BTreeSet::new();
        for (job, tasks) in wanted {
            let Some(limit) = jobs.get(job).and_then(|job| job.quota.running_max) else {
                continue;
            };
            let asked = tasks.clone();
            // Before the call, so that the end of a task during the call is noticed.
            due.await_place(job);
            let take = TakePlaces {
                job: job.clone(),
                limit,
                tasks,
                now,
            };
            let granted = store.take_places(take).await.unwrap_or_else(|error| {
                tracing::warn!(job.name = %job, %error, "failed to take places for running tasks");
                Vec::new()
            });
            let is_full = granted.len() < asked.len() || asked.len() >= limit as usize;
            if is_full {
                self.full.insert(job.clone(), Instant::now() + LOOK_AFTER);
            } else {
                due.forget_place(job);
            }
            let granted: BTreeSet<_> = granted.into_iter().collect();
            let ids = asked.into_iter().map(|(id, _)| id);
            refused.extend(ids.filter(|id| !granted.contains(id)));
        }
        refused
    }

    /// When the places of a full job are to be read again.
    pub(crate) fn next_scan_at(&self) -> Option<Instant> {
        self.full.values().min().copied()
    }
}

/// The limit of a job as a length.
fn limit_of(job: &Job) -> Option<usize> {
    let max = job.quota.running_max?;
    Some(usize::try_from(max).unwrap_or(usize::MAX))
}
