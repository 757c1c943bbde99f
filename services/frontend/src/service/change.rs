//! Changes of tasks that users ask for.

use dueline_api::{
    ApiError, Call,
    operation::{Cancel, Modify},
};
use dueline_domain::{Event, JobName, Task, TaskAddress, TaskId};
use dueline_ports::{Command, StoreError};
use dueline_runtime::log_transition;

use super::{Inner, Serve};

impl Serve for Cancel {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<Task, ApiError> {
        let (running, reason) = (self.running, self.reason);
        if self.family {
            let (job, id) = (self.job, self.id);
            return inner.cancel_family(TaskAddress { job, id }, reason).await;
        }
        let event = Event::Cancel { running, reason };
        inner.apply(self.job, self.id, event).await
    }
}

impl Serve for Modify {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<Task, ApiError> {
        let (change, token) = (self.change, inner.deps.rng.token());
        let event = Event::Modify { change, token };
        inner.apply(self.job, self.id, event).await
    }
}

impl Inner {
    /// One event for one task, with its effects.
    pub(super) async fn apply(
        &self,
        job: JobName,
        id: TaskId,
        event: Event,
    ) -> Result<Task, ApiError> {
        let command = Command {
            job,
            id,
            event,
            write: self.deps.rng.write_id(),
        };
        Ok(self.write(command).await?.without_secrets())
    }

    /// Carries out a command, with its effects.
    pub(super) async fn write(&self, command: Command) -> Result<Task, StoreError> {
        let deps = &self.deps;
        let now = deps.clock.now();
        let effects = deps.effects();
        let mut results = effects.apply(&*deps.store, now, vec![command]).await;
        let applied = results.pop().unwrap_or_else(|| {
            let message = "it gave no answer".into();
            Err(StoreError::Unavailable {
                message,
                outcome_unknown: true,
            })
        })?;
        let task = *applied.task;
        if !applied.repeated {
            log_transition(None, &task);
        }
        Ok(task)
    }
}
