//! The spans of claims and outcomes.

use std::sync::Arc;

use dueline_api::{Action, ApiError, Assignment};
use dueline_domain::{Outcome, Task, TaskRef, WorkerId};
use dueline_trace::{Began, Step, TaskSpan};

/// The spans of the claims of one call. Empty while tracing is off.
pub(crate) struct ClaimSpans(Vec<Option<TaskSpan>>);

impl ClaimSpans {
    pub(crate) fn start(worker: &WorkerId, messages: &[TaskRef]) -> Self {
        if !dueline_trace::is_on() {
            return Self(Vec::new());
        }
        let start = |message: &TaskRef| {
            let (trace, began) = (message.trace.as_deref(), Began::now());
            let span = TaskSpan::start(Step::Claim, trace, &message.job, &message.id, began)?;
            span.set("dueline.worker", worker.to_string());
            Some(span)
        };
        Self(messages.iter().map(start).collect())
    }

    /// Records the answers. A traced assignment carries the context of its claim from here on.
    pub(crate) fn record(self, answers: &mut [Result<Assignment, ApiError>]) {
        for (span, answer) in self.0.into_iter().zip(answers) {
            match (span, answer) {
                (Some(span), Ok(assignment)) => {
                    span.set("dueline.attempt", i64::from(assignment.attempt));
                    assignment.trace = Some(span.traceparent());
                }
                (Some(span), Err(error)) if error.is_retryable() => {
                    span.failed(error.reason().name(), error.to_string());
                }
                // The message is stale: another worker owns the task, or its token has changed.
                (Some(span), Err(error)) => span.set("dueline.refused", error.reason().to_string()),
                (None, _) => {}
            }
        }
    }
}

/// The outcome of a run that is being written.
pub(crate) struct PendingOutcome {
    name: &'static str,
    began: Began,
    /// The context of the run, if its executor traces.
    trace: Option<Arc<str>>,
}

impl PendingOutcome {
    /// The outcome that `action` reports; `None` if it does not end a run, or while tracing is off.
    pub(crate) fn of(action: &Action, trace: Option<&Arc<str>>) -> Option<Self> {
        if !dueline_trace::is_on() {
            return None;
        }
        let name = match action {
            Action::Finish { outcome, .. } => match outcome {
                Outcome::Success { .. } => "success",
                Outcome::Retriable { .. } => "retriable",
                Outcome::Fatal { .. } => "fatal",
                Outcome::Cancelled => "cancelled",
            },
            Action::Abandon => "abandoned",
            Action::Trash { .. } => "trashed",
            Action::Start
            | Action::Heartbeat
            | Action::Extend { .. }
            | Action::Checkpoint { .. } => return None,
        };
        Some(Self {
            name,
            began: Began::now(),
            trace: trace.cloned(),
        })
    }

    /// Records the span of the outcome, which made `task` what it is. Without the context of the run it belongs to the
    /// submit.
    pub(crate) fn written(self, task: &Task) {
        let of_submit = || task.options.as_ref()?.trace.as_deref();
        let trace = self.trace.as_deref().or_else(of_submit);
        if let Some(span) = TaskSpan::start(Step::Outcome, trace, &task.job, &task.id, self.began) {
            span.set("dueline.outcome", self.name);
            span.set("dueline.state", task.kind().name());
        }
    }
}
