//! What a handler sees of the task it runs.

use std::sync::Arc;

use bytes::Bytes;
use dueline_api::{Action, ApiError, Reported};
use dueline_domain::{JobName, Outcome, TaskId, Timestamp, Token};
use tokio::sync::oneshot;

use crate::{
    Failure, StopReason, Success,
    handlers::exec_groups::Groups,
    reporter::Item,
    run::{Run, finished, lost},
    verdict,
};

/// A task that runs. Clones stand for the same run and are cheap.
#[derive(Clone)]
pub struct RunningTask {
    run: Arc<Run>,
}

impl RunningTask {
    pub(crate) fn new(run: Arc<Run>) -> Self {
        Self { run }
    }

    /// The job.
    pub fn job(&self) -> &JobName {
        &self.run.task.job
    }

    /// The task. The same for all its runs, so it serves as an idempotency key.
    pub fn id(&self) -> TaskId {
        self.run.task.id
    }

    /// The fencing token: other systems can refuse a run whose token is not the latest they have seen for the task.
    pub fn token(&self) -> Token {
        self.run.task.token
    }

    /// Which try this is, 0 for the first.
    pub fn attempt(&self) -> u32 {
        self.run.task.attempt
    }

    /// The task's name for people.
    pub fn name(&self) -> Option<&str> {
        self.run.task.name.as_deref()
    }

    /// What to work on: the latest checkpoint, or else the payload.
    pub fn input(&self) -> &Bytes {
        &self.run.task.input
    }

    /// Media type of the payload.
    pub fn content_type(&self) -> Option<&str> {
        self.run.task.content_type.as_deref()
    }

    /// When the task was due.
    pub fn run_at(&self) -> Timestamp {
        self.run.task.run_at
    }

    /// Whether a run of this task has begun before, so that its side effects may be there already.
    pub fn started_before(&self) -> bool {
        self.run.task.started_before
    }

    /// W3C trace context of the submit.
    pub fn trace(&self) -> Option<&str> {
        self.run.task.trace.as_deref()
    }

    /// Settings of the job's handler, as JSON.
    pub fn handler_config(&self) -> &str {
        &self.run.task.handler.config
    }

    /// Where commands are entered that run for a task.
    pub(crate) fn groups(&self) -> &Groups {
        &self.run.ctx.groups
    }

    /// The time now, by the executor's clock.
    pub fn now(&self) -> Timestamp {
        self.run.ctx.clock.now()
    }

    /// Waits until the run must stop, and says why. Cancel safe; may be called any number of times.
    pub async fn stopped(&self) -> StopReason {
        self.run.stopped().await
    }

    /// Why the run must stop, if it must.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.run.stop_reason()
    }

    /// Whether the run must stop.
    pub fn is_stopped(&self) -> bool {
        self.stop_reason().is_some()
    }

    /// Whether the run is no longer this worker's, or will not be in a moment.
    pub fn is_expired(&self) -> bool {
        matches!(
            self.stop_reason(),
            Some(StopReason::Lost | StopReason::Expired | StopReason::Timeout)
        )
    }

    /// Waits until [`RunningTask::is_expired`]; each heartbeat pushes that moment back. Cancel safe.
    pub async fn expired(&self) {
        self.run.expired().await;
    }

    /// Says that the run is alive, besides the heartbeats that the executor sends by itself.
    pub async fn heartbeat(&self) -> Result<(), ApiError> {
        self.report(Action::Heartbeat).await
    }

    /// Stores what a later run shall get instead of the payload. `Ok` means durable. Counts as a heartbeat.
    pub async fn checkpoint(&self, payload: impl Into<Bytes>) -> Result<(), ApiError> {
        let payload = payload.into();
        self.report(Action::Checkpoint { payload }).await
    }

    /// Ends the task well, now. `Ok` means durable. Whatever the handler returns later does not count; a second
    /// finish is refused with reason `finished`.
    pub async fn succeed(&self, success: impl Into<Success>) -> Result<(), ApiError> {
        self.finish(verdict::success(success.into())).await
    }

    /// As [`RunningTask::succeed`] for a run that failed.
    pub async fn fail(&self, failure: impl Into<Failure>) -> Result<(), ApiError> {
        let is_cancelled = self.stop_reason() == Some(StopReason::Cancelled);
        let outcome = match failure.into() {
            Failure::Cancelled if is_cancelled => Outcome::Cancelled,
            failure => verdict::failure(failure),
        };
        self.finish(outcome).await
    }

    async fn finish(&self, outcome: Outcome) -> Result<(), ApiError> {
        // With the place reserved, nothing can come between the decision and its report.
        let place = self.run.ctx.reports.reserve().await;
        let place = place.map_err(|_| gone())?;
        self.run.end()?;
        let started_at = self.run.begun_at();
        let (reply, answer) = oneshot::channel();
        let action = Action::Finish {
            started_at,
            outcome,
        };
        place.send(Item::with_reply(self.run.clone(), action, reply));
        answered(answer).await
    }

    async fn report(&self, action: Action) -> Result<(), ApiError> {
        if self.stop_reason() == Some(StopReason::Lost) {
            return Err(lost());
        }
        if self.run.is_over() {
            return Err(finished());
        }
        let (reply, answer) = oneshot::channel();
        let item = Item::with_reply(self.run.clone(), action, reply);
        let sent = self.run.ctx.reports.send(item).await;
        sent.map_err(|_| gone())?;
        answered(answer).await
    }
}

impl std::fmt::Debug for RunningTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningTask")
            .field("job", self.job())
            .field("id", &self.id())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

async fn answered(answer: oneshot::Receiver<Result<Reported, ApiError>>) -> Result<(), ApiError> {
    answer.await.unwrap_or_else(|_| Err(gone())).map(|_| ())
}

fn gone() -> ApiError {
    ApiError::unavailable("the executor has ended")
}
