//! Job definitions.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_domain::{Job, JobName, TaskId, Timestamp};

use super::MemoryStore;
use crate::{JobStore, PutJob, QuotaSwap, QuotaWrite, StoreError, TakePlaces};

#[async_trait]
impl JobStore for MemoryStore {
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        let mut contents = self.lock();
        let mut job = put.job;
        if let Some(existing) = contents.jobs.get(&job.name) {
            if put.if_absent {
                return Ok(existing.clone());
            }
            job.created_at = existing.created_at;
            job.created_by = existing.created_by.clone();
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
        self.quotas.forget(name);
        Ok(())
    }
    async fn swap_quota(&self, swap: QuotaSwap) -> Result<QuotaWrite, StoreError> {
        self.lock().job(&swap.job)?;
        Ok(self.quotas.swap(swap))
    }

    async fn take_places(&self, take: TakePlaces) -> Result<Vec<TaskId>, StoreError> {
        let mut contents = self.lock();
        contents.job(&take.job)?;
        let counts = contents.indexes.get(&take.job).map(|index| &index.counts);
        let running = counts.into_iter().flatten();
        let running = running.filter(|(kind, _)| kind.is_in_flight());
        let running = running.map(|(_, count)| *count).sum::<u64>();
        let running = usize::try_from(running).unwrap_or(usize::MAX);
        Ok(contents.places.take_places(&take, running))
    }
}
