//! Job definitions.

use std::sync::Arc;

use dueline_api::{
    ApiError, Call, ErrorReason, check,
    operation::{DeleteJob, GetJob, GetJobStats, ListJobs, PauseJob, PutJob, ShownJob},
};
use dueline_domain::{Job, JobName};
use dueline_ports::{self as ports, JobStats, StoreError};

use super::{Inner, Serve};

impl Serve for PutJob {
    /// The queue first: a job that exists has a queue.
    async fn serve(self, inner: &Inner, call: &Call) -> Result<Arc<Job>, ApiError> {
        let Self { job, keeps_pause } = self;
        let deps = &inner.deps;
        if let Err(refused) = check::new_job_name(&job.name)
            && deps.store.job(&job.name).await?.is_none()
        {
            return Err(refused);
        }
        if let Some(sink) = &job.policy.sink {
            deps.sinks.check(sink).map_err(|refused| {
                let reason = ErrorReason::from_name(refused.reason);
                ApiError::invalid("sink", reason, refused)
            })?;
        }
        let stays_paused = keeps_pause
            && deps
                .store
                .job(&job.name)
                .await?
                .is_some_and(|job| job.paused);
        let now = deps.clock.now();
        deps.queue.ensure(&job.name).await?;
        let put = ports::PutJob {
            job: Job {
                paused: job.paused || stays_paused,
                created_by: call.principal.clone().unwrap_or_default(),
                created_at: now,
                changed_at: now,
                ..job
            },
            if_absent: false,
        };
        let job = deps.store.put_job(put).await?;
        inner.changed(&job);
        Ok(job)
    }
}

impl Serve for GetJob {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<ShownJob, ApiError> {
        let job = inner.job(&self.name).await?;
        let frequency = match self.frequency {
            true => inner.frequency(&self.name).await?,
            false => None,
        };
        Ok(ShownJob { job, frequency })
    }
}

impl Serve for ListJobs {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<Vec<Arc<Job>>, ApiError> {
        Ok(inner.deps.store.jobs().await?)
    }
}

impl Serve for PauseJob {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<Arc<Job>, ApiError> {
        let (store, now) = (&inner.deps.store, inner.deps.clock.now());
        let job = store.pause_job(&self.name, self.paused, now).await?;
        inner.changed(&job);
        Ok(job)
    }
}

impl Serve for DeleteJob {
    /// The queue last: a queue without a job is litter, a job without a queue is a fault.
    async fn serve(self, inner: &Inner, _: &Call) -> Result<(), ApiError> {
        let name = &self.name;
        inner.deps.store.delete_job(name).await?;
        inner.notify_jobs();
        if let Err(error) = inner.deps.queue.remove(name).await {
            tracing::warn!(
                job.name = %name,
                %error,
                "job is deleted but its queue could not be removed"
            );
        }
        Ok(())
    }
}

impl Serve for GetJobStats {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<JobStats, ApiError> {
        inner.job(&self.name).await?;
        Ok(inner.deps.store.stats(&self.name).await?)
    }
}

impl Inner {
    pub(super) async fn job(&self, name: &JobName) -> Result<Arc<Job>, ApiError> {
        let job = self.deps.store.job(name).await?;
        Ok(job.ok_or_else(|| StoreError::no_job(name))?)
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
