//! Job definitions.

use std::sync::Arc;

use dueline_api::{ApiError, ErrorKind};
use dueline_domain::{Job, JobName};
use dueline_ports::{JobStats, PutJob, StoreError};

use super::Inner;

impl Inner {
    /// The queue first: a job that exists has a queue.
    pub(super) async fn put_job(&self, job: Job) -> Result<Arc<Job>, ApiError> {
        job.policy.check().map_err(|error| {
            ApiError::new(ErrorKind::Invalid, "invalid_timeout", error.to_string())
        })?;
        job.quota.check().map_err(|error| {
            ApiError::new(ErrorKind::Invalid, "invalid_quota", error.to_string())
        })?;
        let now = self.deps.clock.now();
        self.deps.queue.ensure(&job.name).await?;
        let put = PutJob {
            job: Job {
                created_at: now,
                changed_at: now,
                ..job
            },
            if_absent: false,
        };
        let job = self.deps.store.put_job(put).await?;
        self.changed(&job);
        Ok(job)
    }

    pub(super) async fn job(&self, name: &JobName) -> Result<Arc<Job>, ApiError> {
        let job = self.deps.store.job(name).await?;
        Ok(job.ok_or_else(|| StoreError::no_job(name))?)
    }

    pub(super) async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
    ) -> Result<Arc<Job>, ApiError> {
        let now = self.deps.clock.now();
        let job = self.deps.store.pause_job(name, paused, now).await?;
        self.changed(&job);
        Ok(job)
    }

    /// The queue last: a queue without a job is litter, a job without a queue is a fault.
    pub(super) async fn delete_job(&self, name: &JobName) -> Result<(), ApiError> {
        self.deps.store.delete_job(name).await?;
        self.notify_jobs();
        if let Err(error) = self.deps.queue.remove(name).await {
            tracing::warn!(
                job.name = %name,
                %error,
                "job is deleted but its queue could not be removed"
            );
        }
        Ok(())
    }

    pub(super) async fn job_stats(&self, name: &JobName) -> Result<JobStats, ApiError> {
        self.job(name).await?;
        Ok(self.deps.store.stats(name).await?)
    }

    fn changed(&self, job: &Job) {
        self.notify_jobs();
        if !job.paused {
            // Tasks that came due while the job was paused are due now.
            self.deps.due.announce(self.deps.clock.now());
        }
    }

    fn notify_jobs(&self) {
        // All who wait, and the one who comes next if nobody does.
        self.deps.jobs_changed.notify_waiters();
        self.deps.jobs_changed.notify_one();
    }
}
