//! The part of the store seam that limits how many tasks of a job run at once.

use std::{collections::HashMap, time::Duration};

use dueline_domain::{JobName, TaskId, Timestamp};

/// Tasks that are about to be enqueued or claimed, in a job that limits how many of its tasks are enqueued or owned at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakePlaces {
    /// The job.
    pub job: JobName,
    /// Most tasks of the job that may be enqueued or owned at once.
    pub limit: u32,
    /// The tasks, in the order in which they get places, each with the trigger time that was read.
    pub tasks: Vec<(TaskId, Timestamp)>,
    /// When this is.
    pub now: Timestamp,
}

impl TakePlaces {
    /// How long a place is kept for a task that is not enqueued. A process that enqueues the task later than that may exceed
    /// the limit.
    pub const LIFETIME: Duration = Duration::from_secs(10);

    /// The limit as a length.
    pub fn limit_len(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }
}

/// The places of tasks that are about to be enqueued, in a store that one process owns. The store itself counts the tasks
/// that are enqueued or owned.
#[derive(Debug, Default)]
pub struct LocalPlaces(HashMap<JobName, Vec<(TaskId, Timestamp)>>);

impl LocalPlaces {
    /// As [`JobStore::take_places`](crate::JobStore::take_places), for a job with `running` tasks that are enqueued or owned.
    pub fn take_places(&mut self, take: &TakePlaces, running: usize) -> Vec<TaskId> {
        let reserved = self.0.entry(take.job.clone()).or_default();
        reserved.retain(|(id, until)| {
            *until > take.now && !take.tasks.iter().any(|(task, _)| task == id)
        });
        let free = take.limit_len().saturating_sub(running + reserved.len());
        let until = take.now.after(TakePlaces::LIFETIME);
        let granted = take.tasks.iter().take(free).map(|(id, _)| *id);
        let granted: Vec<_> = granted.collect();
        reserved.extend(granted.iter().map(|id| (*id, until)));
        if reserved.is_empty() {
            self.0.remove(&take.job);
        }
        granted
    }

    /// Forgets the reservation of a task that is enqueued or owned now: the store counts it from here on. Costs one comparison if no job has a limit.
    pub fn settle(&mut self, job: &JobName, id: &TaskId) {
        if self.0.is_empty() {
            return;
        }
        if let Some(reserved) = self.0.get_mut(job) {
            reserved.retain(|(task, _)| task != id);
            if reserved.is_empty() {
                self.0.remove(job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(tasks: &[u8], now: i64) -> TakePlaces {
        TakePlaces {
            job: JobName::parse("mail").unwrap(),
            limit: 3,
            tasks: tasks
                .iter()
                .map(|n| (TaskId::from_bytes([*n; 16]), Timestamp::EPOCH))
                .collect(),
            now: Timestamp::clamped(now),
        }
    }

    #[test]
    fn a_place_is_kept_until_its_task_runs_or_its_time_is_over() {
        let mut places = LocalPlaces::default();
        assert_eq!(places.take_places(&take(&[1, 2], 0), 0).len(), 2);
        // The same tasks get their own places again.
        assert_eq!(places.take_places(&take(&[1, 2], 1), 0).len(), 2);
        assert_eq!(places.take_places(&take(&[3, 4], 2), 0).len(), 1);
        assert_eq!(places.take_places(&take(&[5], 3), 0), []);

        let job = JobName::parse("mail").unwrap();
        places.settle(&job, &TaskId::from_bytes([1; 16]));
        assert_eq!(places.take_places(&take(&[5], 4), 1), []);
        // Its run is over.
        assert_eq!(places.take_places(&take(&[5], 5), 0).len(), 1);
        assert_eq!(places.take_places(&take(&[6], 9_000), 0), []);
        assert_eq!(places.take_places(&take(&[6, 7, 8, 9], 20_000), 0).len(), 3);
    }
}
