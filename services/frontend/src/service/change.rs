//! Changes of tasks that users ask for.

use std::sync::Arc;

use dueline_api::{ApiError, check};
use dueline_domain::{Event, JobName, Modification, RunningCancel, Task, TaskId};
use dueline_ports::{Command, StoreError};
use dueline_runtime::log_transition;

use super::Inner;

impl Inner {
    pub(super) async fn cancel(
        &self,
        job: JobName,
        id: TaskId,
        running: RunningCancel,
        reason: Option<Arc<str>>,
    ) -> Result<Task, ApiError> {
        check::cancel_reason(reason.as_deref())?;
        self.apply(job, id, Event::Cancel { running, reason }).await
    }

    pub(super) async fn modify(
        &self,
        job: JobName,
        id: TaskId,
        change: Modification,
    ) -> Result<Task, ApiError> {
        check::modification(&change)?;
        let token = self.deps.rng.token();
        self.apply(job, id, Event::Modify { change, token }).await
    }

    pub(super) async fn redrive(&self, job: JobName, id: TaskId) -> Result<Task, ApiError> {
        self.apply(job, id, Event::Redrive).await
    }

    /// One event for one task, with its effects.
    async fn apply(&self, job: JobName, id: TaskId, event: Event) -> Result<Task, ApiError> {
        let deps = &self.deps;
        let command = Command {
            job,
            id,
            event,
            write: deps.rng.write_id(),
        };
        let now = deps.clock.now();
        let effects = deps.effects();
        let mut results = effects.apply(&*deps.store, now, vec![command]).await;
        let applied = results.pop().unwrap_or_else(|| {
            let message = Arc::from("it gave no answer");
            Err(StoreError::Unavailable {
                message,
                outcome_unknown: true,
            })
        })?;
        let task = *applied.task;
        log_transition(None, &task);
        Ok(task)
    }
}
