//! The index of schedules by the time at which a consumer has to process them. It follows its table late.

use std::collections::{BTreeMap, VecDeque};

use dueline_domain::{JobName, Schedule, ScheduleName, Timestamp};
use dueline_ports::{DueSchedulesQuery, schedule_shard};
use tokio::time::Instant;

/// What the index has of each schedule.
#[derive(Default)]
pub(super) struct ScheduleIndex(BTreeMap<(JobName, ScheduleName), IndexRow>);

/// The entry of a schedule, and the writes that have not reached the index.
#[derive(Default)]
struct IndexRow {
    wake_at: Option<Timestamp>,
    pending: VecDeque<(Instant, Option<Timestamp>)>,
}

/// The schedules whose entries say that they are due.
#[derive(Default)]
pub(super) struct DueNames {
    /// Their names, those that have waited longest first.
    pub(super) names: Vec<(JobName, ScheduleName)>,
    /// The earliest time that has not come.
    pub(super) next_at: Option<Timestamp>,
    /// Whether a write of any schedule has not reached the index.
    pub(super) is_late: bool,
}

impl ScheduleIndex {
    /// Adds an accepted write, which reaches the index at `at` or after the one before.
    pub(super) fn add_write(&mut self, schedule: &Schedule, at: Instant) {
        let name = (schedule.job.clone(), schedule.name.clone());
        let row = self.0.entry(name).or_default();
        let at = row.pending.back().map_or(at, |(before, _)| at.max(*before));
        row.pending.push_back((at, schedule.wake_at()));
    }

    /// What is due by the writes that have reached the index, or by all writes.
    pub(super) fn due(&mut self, query: &DueSchedulesQuery, now: Instant, all: bool) -> DueNames {
        let mut found = DueNames::default();
        let mut due = Vec::new();
        for ((job, name), row) in &mut self.0 {
            while let Some((at, wake_at)) = row.pending.front() {
                if *at > now && !all {
                    found.is_late = true;
                    break;
                }
                row.wake_at = *wake_at;
                row.pending.pop_front();
            }
            let shard = schedule_shard(job, name);
            let share = query.share.as_ref();
            let is_covered = share.is_none_or(|share| share.covers_schedules(shard));
            let Some(wake_at) = row.wake_at.filter(|_| is_covered) else {
                continue;
            };
            if wake_at > query.now {
                found.next_at = found.next_at.into_iter().chain([wake_at]).min();
                continue;
            }
            due.push((wake_at, job.clone(), name.clone()));
        }
        due.sort();
        found.names = due.into_iter().map(|(_, job, name)| (job, name)).collect();
        found
    }
}
