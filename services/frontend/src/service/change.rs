//! Changes of tasks that users ask for.

use std::sync::Arc;

use dueline_api::ApiError;
use dueline_domain::{Event, JobName, Modification, RunningCancel, State, Task, TaskId};
use dueline_ports::{Command, StoreError, apply_and_hand_on};

use super::Inner;

impl Inner {
    pub(super) async fn cancel(
        &self,
        job: JobName,
        id: TaskId,
        running: RunningCancel,
        reason: Option<Arc<str>>,
    ) -> Result<Task, ApiError> {
        self.apply(job, id, Event::Cancel { running, reason }).await
    }

    pub(super) async fn modify(
        &self,
        job: JobName,
        id: TaskId,
        change: Modification,
    ) -> Result<Task, ApiError> {
        let token = self.deps.rng.token();
        self.apply(job, id, Event::Modify { change, token }).await
    }

    pub(super) async fn redrive(&self, job: JobName, id: TaskId) -> Result<Task, ApiError> {
        self.apply(job, id, Event::Redrive).await
    }

    /// One event for one task, and word of it to those who wait.
    async fn apply(&self, job: JobName, id: TaskId, event: Event) -> Result<Task, ApiError> {
        let deps = &self.deps;
        let command = Command {
            job,
            id,
            event,
            write: deps.rng.write_id(),
        };
        let now = deps.clock.now();
        let mut results = apply_and_hand_on(&*deps.store, &*deps.queue, now, vec![command]).await;
        let applied = results.pop().unwrap_or_else(|| {
            let message = Arc::from("it gave no answer");
            Err(StoreError::Unavailable {
                message,
                outcome_unknown: true,
            })
        })?;
        let task = *applied.task;
        if task.kind().is_final() {
            deps.ended.ended(&task.id);
        }
        if let State::New { due_at } = task.state {
            deps.due.announce(due_at);
        }
        Ok(task)
    }
}
