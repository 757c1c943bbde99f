//! Job definitions.

use std::sync::Arc;

use dueline_api::{ApiError, Call, JobPut, check};
use dueline_domain::{Job, JobName};
use dueline_ports::{JobStats, PutJob, StoreError};

use super::Inner;

impl Inner {
    /// The queue first: a job that exists has a queue.
    pub(super) async fn put_job(&self, call: &Call, put: JobPut) -> Result<Arc<Job>, ApiError> {
        let JobPut { job, keeps_pause } = put;
        check::job(&job)?;
        let deps = &self.deps;
        if let Some(sink) = &job.policy.sink {
            deps.sinks
                .check(sink)
                .map_err(|refused| ApiError::invalid("sink", refused.reason, refused))?;
        }
        let stays_paused = keeps_pause
            && deps
                .store
                .job(&job.name)
                .await?
                .is_some_and(|job| job.paused);
        let now = deps.clock.now();
        self.deps.queue.ensure(&job.name).await?;
        let put = PutJob {
            job: Job {
                paused: job.paused || stays_paused,
                created_by: call.principal.clone().unwrap_or_default(),
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
        // All waiters, or the next one if there is none.
        self.deps.jobs_changed.notify_waiters();
        self.deps.jobs_changed.notify_one();
    }
}
