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

use dueline_domain::{Job, JobName, Quota, TaskId, Timestamp};
use dueline_ports::{DueTask, PlaceRequest, Places, Store, TakePlaces};
use dueline_runtime::DueSignal;
use tokio::time::Instant;

use crate::fair_share::FairShares;

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

    /// Gets places for the pending tasks that a scan has found, in their order. Returns the tasks that got none, and whether
    /// lanes are left that had no turn yet although there is room.
    pub(crate) async fn take_places(
        &mut self,
        store: &dyn Store,
        due: &DueSignal,
        jobs: &BTreeMap<&JobName, &Arc<Job>>,
        fair: &mut FairShares,
        pending: impl Iterator<Item = &DueTask>,
        now: Timestamp,
    ) -> (BTreeSet<TaskId>, bool) {
        let mut wanted: BTreeMap<&JobName, Vec<&DueTask>> = BTreeMap::new();
        for task in pending {
            if jobs.get(&task.job).is_some_and(|job| job.takes_places()) {
                wanted.entry(&task.job).or_default().push(task);
            }
        }
        let (mut refused, mut has_more) = (BTreeSet::new(), false);
        for (name, tasks) in wanted {
            let Some(job) = jobs.get(name) else { continue };
            let mut lanes = fair.of(name);
            let by_task = lanes.as_ref().map(|lanes| lanes.by_task());
            let lane_of = |id: &TaskId| {
                let lane = by_task.as_ref().and_then(|lanes| lanes.get(id));
                lane.cloned().unwrap_or_default()
            };
            // Before the call, so that the end of a task during the call is noticed.
            due.await_place(name);
            let take = TakePlaces {
                job: name.clone(),
                limit: job.quota.running_max.unwrap_or(Quota::RUNNING_MAX),
                lane_limit: job.fair_share.and_then(|share| share.running_max),
                enqueued_max: lanes.as_ref().map(|lanes| lanes.ahead.limit()),
                tasks: tasks
                    .iter()
                    .map(|task| PlaceRequest {
                        id: task.id,
                        trigger_at: task.trigger_at,
                        lane: lane_of(&task.id),
                    })
                    .collect(),
                now,
            };
            let (places, failed) = match store.take_places(take).await {
                Ok(places) => (places, false),
                Err(error) => {
                    tracing::warn!(job.name = %name, %error, "failed to take places for running tasks");
                    (Places::default(), true)
                }
            };
            let none_granted = places.granted.is_empty();
            let lanes_left = match &mut lanes {
                Some(lanes) if !failed => lanes.record(&places, Instant::now()),
                _ => false,
            };
            if lanes_left {
                // The lanes that were read are full; others may have room.
                due.forget_place(name);
                match none_granted {
                    true => drop(self.full.insert(name.clone(), Instant::now())),
                    false => has_more = true,
                }
            } else if places.is_full || places.granted.len() < tasks.len() {
                self.full.insert(name.clone(), Instant::now() + LOOK_AFTER);
            } else {
                due.forget_place(name);
            }
            let granted: BTreeSet<_> = places.granted.into_iter().collect();
            let ids = tasks.into_iter().map(|task| task.id);
            refused.extend(ids.filter(|id| !granted.contains(id)));
        }
        (refused, has_more)
    }

    /// When the places of a full job are to be read again.
    pub(crate) fn next_scan_at(&self) -> Option<Instant> {
        self.full.values().min().copied()
    }
}

/// The limit of a job as a length. A job with a fair share has the greatest one if it sets none.
fn limit_of(job: &Job) -> Option<usize> {
    let max = job.quota.running_max.unwrap_or(Quota::RUNNING_MAX);
    job.takes_places()
        .then(|| usize::try_from(max).unwrap_or(usize::MAX))
}
