//! The handle through which a handler reads and reports on the task it runs.

use std::sync::Arc;

use bytes::Bytes;
use dueline_api::{Action, ApiError, PredecessorResult, ReportAck};
use dueline_domain::{FromRun, JobName, NewTask, Outcome, TaskAddress, TaskId, Timestamp, Token};
use tokio::sync::oneshot;

use crate::{
    Failure, StopReason, Success,
    handlers::exec_groups::ProcessGroups,
    run::{Run, RunReport, finished, lost},
    verdict,
};

/// A running task. Clones are cheap and refer to the same run.
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

    /// The task's id. The same for all its runs, so it serves as an idempotency key.
    pub fn id(&self) -> TaskId {
        self.run.task.id
    }

    /// The fencing token. Other systems can refuse a run whose token is not the latest that they know of the task.
    pub fn token(&self) -> Token {
        self.run.task.token
    }

    /// Makes a submit one from inside this run: the task goes on when this run succeeds, and is discarded otherwise. Then it
    /// is submitted as any other. A later run that submits a task with the same id or key takes over what this one staged.
    #[must_use]
    pub fn stage(&self, mut task: NewTask) -> NewTask {
        let options = task.options.get_or_insert_default();
        options.family.get_or_insert_default().from_run = Some(FromRun {
            task: TaskAddress {
                job: self.job().clone(),
                id: self.id(),
            },
            token: self.token(),
            end: None,
        });
        task
    }

    /// The number of this run, 0 for the first.
    pub fn attempt(&self) -> u32 {
        self.run.task.attempt
    }

    /// The task's display name.
    pub fn name(&self) -> Option<&str> {
        self.run.task.name.as_deref()
    }

    /// The input: the latest checkpoint, or else the payload.
    pub fn input(&self) -> &Bytes {
        &self.run.task.input
    }

    /// Media type of the payload.
    pub fn content_type(&self) -> Option<&str> {
        self.run.task.content_type.as_deref()
    }

    /// What the task's predecessors have returned, in their order. A result that is too large is only named.
    pub fn results(&self) -> &[PredecessorResult] {
        &self.run.task.results
    }

    /// When the task was due.
    pub fn run_at(&self) -> Timestamp {
        self.run.task.run_at
    }

    /// Whether an earlier run of this task has begun, so that its side effects may exist already.
    pub fn started_before(&self) -> bool {
        self.run.task.started_before
    }

    /// The trace context to continue, as W3C `traceparent`: that of this run, or that of the submit while tracing is off.
    pub fn trace(&self) -> Option<&str> {
        self.run.trace()
    }

    /// Settings of the job's handler, as JSON.
    pub fn handler_config(&self) -> &str {
        &self.run.task.handler.config
    }

    /// The process groups in which commands of tasks run.
    pub(crate) fn groups(&self) -> &ProcessGroups {
        &self.run.context.groups
    }

    /// The time now, by the executor's clock.
    pub fn now(&self) -> Timestamp {
        self.run.context.clock.now()
    }

    /// Waits until the run must stop, and returns why. Cancel safe; may be called any number of times.
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

    /// Whether the task is lost or its lease is about to end.
    pub fn is_expired(&self) -> bool {
        matches!(
            self.stop_reason(),
            Some(StopReason::Lost | StopReason::Expired | StopReason::Timeout)
        )
    }

    /// Waits until [`RunningTask::is_expired`]; each heartbeat delays that. Cancel safe.
    pub async fn expired(&self) {
        self.run.expired().await;
    }

    /// Sends a heartbeat, in addition to those that the executor sends by itself.
    pub async fn heartbeat(&self) -> Result<(), ApiError> {
        self.report(Action::Heartbeat).await
    }

    /// Stores an input that later runs get instead of the payload. `Ok` means durable. Counts as a heartbeat.
    pub async fn checkpoint(&self, payload: impl Into<Bytes>) -> Result<(), ApiError> {
        let payload = payload.into();
        self.report(Action::Checkpoint { payload }).await
    }

    /// Finishes the task as succeeded, before the handler returns. `Ok` means durable. The handler's return value does
    /// not count then, and a second finish is refused with reason `finished`.
    pub async fn succeed(&self, success: impl Into<Success>) -> Result<(), ApiError> {
        self.finish(verdict::success(success.into())).await
    }

    /// Finishes the run as failed; see [`RunningTask::succeed`].
    pub async fn fail(&self, failure: impl Into<Failure>) -> Result<(), ApiError> {
        let is_cancelled = self.stop_reason() == Some(StopReason::Cancelled);
        let outcome = match failure.into() {
            Failure::Cancelled if is_cancelled => Outcome::Cancelled,
            failure => verdict::failure(failure),
        };
        self.finish(outcome).await
    }

    async fn finish(&self, outcome: Outcome) -> Result<(), ApiError> {
        // The permit is reserved first, so that nothing can come between deciding the outcome and reporting it.
        let permit = self.run.context.reports.reserve().await;
        let permit = permit.map_err(|_| gone())?;
        self.run.end()?;
        let started_at = self.run.begun_at();
        let (reply, answer) = oneshot::channel();
        let action = Action::Finish {
            started_at,
            outcome,
        };
        permit.send(RunReport::with_reply(self.run.clone(), action, reply));
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
        let report = RunReport::with_reply(self.run.clone(), action, reply);
        let sent = self.run.context.reports.send(report).await;
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

async fn answered(answer: oneshot::Receiver<Result<ReportAck, ApiError>>) -> Result<(), ApiError> {
    answer.await.unwrap_or_else(|_| Err(gone())).map(|_| ())
}

fn gone() -> ApiError {
    ApiError::unavailable("the executor has ended")
}
