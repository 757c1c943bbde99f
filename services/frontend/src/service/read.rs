//! Questions about tasks.

use std::time::Duration;

use dueline_api::ApiError;
use dueline_domain::{JobName, Task, TaskId};
use dueline_ports::{ListQuery, Page, StoreError};
use tokio::time::Instant;

use super::Inner;

/// When one who waits looks at the store again, signal or not: the end may be reported to another process. At first
/// soon, then less and less often.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(125), Duration::from_secs(1));

impl Inner {
    /// Cancel safe.
    pub(super) async fn task(
        &self,
        job: &JobName,
        id: &TaskId,
        wait: Option<Duration>,
    ) -> Result<Task, ApiError> {
        let Some(wait) = wait else {
            return self.look(job, id).await;
        };
        let until = Instant::now() + wait;
        // Subscribed before the first look: an end in between is not missed.
        let end = self.deps.ended.subscribe(*id);
        let mut look_again = LOOK_AGAIN.0;
        loop {
            let task = self.look(job, id).await?;
            let now = Instant::now();
            if task.kind().is_final() || now >= until {
                return Ok(task);
            }
            tokio::select! {
                biased;
                () = end.signalled() => {}
                () = tokio::time::sleep_until(until.min(now + look_again)) => {}
            }
            look_again = (look_again * 2).min(LOOK_AGAIN.1);
        }
    }

    async fn look(&self, job: &JobName, id: &TaskId) -> Result<Task, ApiError> {
        if let Some(task) = self.deps.store.get(job, id).await? {
            return Ok(task);
        }
        self.job(job).await?;
        Err(StoreError::no_task(id).into())
    }

    pub(super) async fn tasks(&self, query: ListQuery) -> Result<Page, ApiError> {
        self.job(&query.job).await?;
        Ok(self.deps.store.list(query).await?)
    }
}
