//! Job definitions.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_domain::{Job, JobName, StateKind, Task, Timestamp};

use super::MemoryStore;
use crate::{
    JobStore, Places, PutJob, QuotaSwap, QuotaWrite, RunningCounts, StoreError, TakePlaces,
};

#[async_trait]
impl JobStore for MemoryStore {
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        let mut contents = self.lock();
        let mut job = put.job;
        if let Some(existing) = contents.jobs.get(&job.name) {
            if put.if_absent {
                return Ok(existing.clone());
            }
            job.keep(existing);
        }
        let job = Arc::new(job);
        contents.jobs.insert(job.name.clone(), job.clone());
        Ok(job)
    }

    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        Ok(self.lock().jobs.get(name).cloned())
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        Ok(self.lock().jobs.values().cloned().collect())
    }

    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError> {
        let mut contents = self.lock();
        let job = contents
            .jobs
            .get_mut(name)
            .ok_or_else(|| StoreError::no_job(name))?;
        *job = Arc::new(Job {
            paused,
            changed_at: now.max(job.changed_at),
            ..Job::clone(job)
        });
        Ok(job.clone())
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        let mut contents = self.lock();
        contents.job(name)?;
        if contents
            .schedules
            .get(name)
            .is_some_and(|all| !all.is_empty())
        {
            return Err(StoreError::HasSchedules(name.clone()));
        }
        if let Some(index) = contents.indexes.get(name) {
            let unfinished = index.unfinished();
            if unfinished > 0 {
                let job = name.clone();
                return Err(StoreError::InUse { job, unfinished });
            }
        }
        if let Some(index) = contents.indexes.remove(name) {
            for id in index.by_seq.values() {
                contents.tasks.remove(id);
            }
        }
        contents.jobs.remove(name);
        contents.feed.forget(name);
        self.quotas.forget(name);
        Ok(())
    }
    async fn swap_quota(&self, swap: QuotaSwap) -> Result<QuotaWrite, StoreError> {
        self.lock().job(&swap.job)?;
        Ok(self.quotas.swap(swap))
    }

    async fn take_places(&self, take: TakePlaces) -> Result<Places, StoreError> {
        let mut contents = self.lock();
        contents.job(&take.job)?;
        let contents = &mut *contents;
        let index = contents.indexes.get(&take.job);
        let in_flight = index.into_iter().flat_map(|index| index.by_seq.values());
        let in_flight = in_flight.filter_map(|id| contents.tasks.get(id));
        let in_flight = in_flight.map(|stored| &stored.task);
        let in_flight: Vec<_> = in_flight
            .filter(|task| task.kind().is_in_flight())
            .collect();
        let is_enqueued = |task: &&&Task| task.kind() == StateKind::Enqueued;
        let counts = RunningCounts {
            in_flight: in_flight.len(),
            enqueued: in_flight.iter().filter(is_enqueued).count(),
        };
        let in_lane = |lane: &str| {
            let tasks = in_flight.iter();
            tasks.filter(|task| task.lane_name() == lane).count()
        };
        Ok(contents.places.take_places(&take, counts, in_lane))
    }
}
