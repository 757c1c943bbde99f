//! Questions about tasks.

use std::time::Duration;

use dueline_api::{ApiError, Call, check};
use dueline_domain::{JobName, Task, TaskId};
use dueline_ports::{ListQuery, Page, StoreError};
use tokio::time::Instant;

use super::Inner;

/// When a wait reads the store again without a signal: the end may be reported to another process. At first
/// soon, then less and less often.
const READ_AGAIN: (Duration, Duration) = (Duration::from_millis(125), Duration::from_secs(1));

/// How long before the deadline of a call its wait ends.
const DEADLINE_MARGIN: Duration = Duration::from_millis(50);

impl Inner {
    /// Cancel safe.
    pub(super) async fn task(
        &self,
        call: &Call,
        job: &JobName,
        id: &TaskId,
        wait: Option<Duration>,
    ) -> Result<Task, ApiError> {
        let Some(wait) = wait else {
            return self.look(job, id).await;
        };
        check::wait("wait", Some(wait))?;
        let mut until = Instant::now() + wait;
        if let Some(deadline) = call.deadline {
            // The task as it is now is worth more than an error when the deadline has passed.
            let end = deadline.checked_sub(DEADLINE_MARGIN.min(wait));
            until = until.min(end.unwrap_or(deadline));
        }
        // Subscribed before the first look: an end in between is not missed.
        let end = self.deps.ended.subscribe(*id);
        let mut read_again = READ_AGAIN.0;
        loop {
            let task = self.look(job, id).await?;
            let now = Instant::now();
            if task.kind().is_final() || now >= until {
                return Ok(task);
            }
            tokio::select! {
                biased;
                () = end.signalled() => {}
                () = tokio::time::sleep_until(until.min(now + read_again)) => {}
            }
            read_again = (read_again * 2).min(READ_AGAIN.1);
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
        check::list_query(&query)?;
        self.job(&query.job).await?;
        Ok(self.deps.store.list(query).await?)
    }
}
