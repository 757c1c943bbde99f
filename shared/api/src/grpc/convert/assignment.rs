//! What workers are given, and who they are.

use std::{sync::Arc, time::Duration};

use dueline_domain::{Handler, TaskAddress, TaskRef, limits};

use super::{enums, field};
use crate::{
    ApiError, Assignment, PollRequest, PredecessorResult, Registered, Registration, ServedJob,
    grpc::proto,
};

impl From<TaskRef> for proto::TaskRef {
    fn from(message: TaskRef) -> Self {
        Self {
            job: message.job.to_string(),
            id: message.id.to_string(),
            token: message.token.get(),
            priority: message.priority.get().into(),
            weight: message.weight.get().into(),
            due_at_ms: message.due_at.millis(),
            trace: field::string_opt(message.trace),
        }
    }
}

impl TryFrom<proto::TaskRef> for TaskRef {
    type Error = ApiError;

    fn try_from(message: proto::TaskRef) -> Result<Self, ApiError> {
        let trace = field::text_opt(message.trace);
        field::short_text("trace", trace.as_deref())?;
        Ok(Self {
            job: field::job_name("job", &message.job)?,
            id: field::task_id("id", &message.id)?,
            token: field::token("token", message.token)?,
            priority: field::priority("priority", message.priority)?,
            weight: field::weight("weight", message.weight)?,
            due_at: field::timestamp("due_at_ms", message.due_at_ms)?,
            trace,
        })
    }
}

impl From<Assignment> for proto::Assignment {
    fn from(assignment: Assignment) -> Self {
        Self {
            job: assignment.job.to_string(),
            id: assignment.id.to_string(),
            token: assignment.token.get(),
            attempt: assignment.attempt,
            input: assignment.input,
            content_type: field::string_opt(assignment.content_type),
            name: field::string_opt(assignment.name),
            weight: assignment.weight.get().into(),
            run_at_ms: assignment.run_at.millis(),
            claimed_at_ms: assignment.claimed_at.millis(),
            handler: Some((&assignment.handler).into()),
            claim_timeout_ms: field::millis(assignment.claim_timeout),
            heartbeat_timeout_ms: field::millis(assignment.heartbeat_timeout),
            heartbeat_increment_ms: field::millis(assignment.heartbeat_increment),
            run_timeout_ms: assignment.run_timeout.map(field::millis),
            start_first: assignment.start_first,
            started_before: assignment.started_before,
            trace: field::string_opt(assignment.trace),
            started: assignment.started,
            waited_ms: field::millis(assignment.waited),
            results: assignment.results.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::Assignment> for Assignment {
    type Error = ApiError;

    fn try_from(assignment: proto::Assignment) -> Result<Self, ApiError> {
        let handler = field::required("assignment.handler", assignment.handler)?;
        Ok(Self {
            job: field::job_name("assignment.job", &assignment.job)?,
            id: field::task_id("assignment.id", &assignment.id)?,
            token: field::token("assignment.token", assignment.token)?,
            attempt: assignment.attempt,
            input: assignment.input,
            content_type: field::text_opt(assignment.content_type),
            name: field::text_opt(assignment.name),
            weight: field::weight("assignment.weight", assignment.weight)?,
            run_at: field::timestamp("assignment.run_at_ms", assignment.run_at_ms)?,
            claimed_at: field::timestamp("assignment.claimed_at_ms", assignment.claimed_at_ms)?,
            handler: Handler::from(handler),
            claim_timeout: Duration::from_millis(assignment.claim_timeout_ms),
            heartbeat_timeout: Duration::from_millis(assignment.heartbeat_timeout_ms),
            heartbeat_increment: Duration::from_millis(assignment.heartbeat_increment_ms),
            run_timeout: assignment.run_timeout_ms.map(Duration::from_millis),
            start_first: assignment.start_first,
            started_before: assignment.started_before,
            trace: field::text_opt(assignment.trace),
            started: assignment.started,
            results: assignment
                .results
                .into_iter()
                .map(TryInto::try_into)
                .collect::<Result<_, _>>()?,
            waited: Duration::from_millis(assignment.waited_ms),
        })
    }
}

impl From<PredecessorResult> for proto::PredecessorResult {
    fn from(one: PredecessorResult) -> Self {
        let end = one.end.map(proto::TaskEnd::from);
        Self {
            job: one.task.job.to_string(),
            id: one.task.id.to_string(),
            end: end.map(Into::into),
            bytes: one.bytes,
            result: one.result,
        }
    }
}

impl TryFrom<proto::PredecessorResult> for PredecessorResult {
    type Error = ApiError;

    fn try_from(one: proto::PredecessorResult) -> Result<Self, ApiError> {
        let end = one.end.map(|end| enums::task_end("results.end", end));
        Ok(Self {
            task: TaskAddress {
                job: field::job_name("results.job", &one.job)?,
                id: field::task_id("results.id", &one.id)?,
            },
            end: end.transpose()?,
            bytes: one.bytes,
            result: one.result,
        })
    }
}

impl From<PollRequest> for proto::PollRequest {
    fn from(ask: PollRequest) -> Self {
        Self {
            worker: ask.worker.to_string(),
            jobs: ask.jobs.iter().map(ToString::to_string).collect(),
            handlers: ask.handlers.iter().map(ToString::to_string).collect(),
            tasks_max: field::count(ask.tasks_max),
            weight_max: ask.weight_max,
            task_weight_max: ask.task_weight_max,
            wait_ms: field::millis(ask.wait),
            start: ask.start,
        }
    }
}

impl TryFrom<proto::PollRequest> for PollRequest {
    type Error = ApiError;

    fn try_from(ask: proto::PollRequest) -> Result<Self, ApiError> {
        Ok(Self {
            worker: field::worker_id("worker", &ask.worker)?,
            jobs: field::job_names("jobs", &ask.jobs)?,
            handlers: handlers(ask.handlers)?,
            tasks_max: usize::try_from(ask.tasks_max).unwrap_or(usize::MAX),
            weight_max: ask.weight_max,
            task_weight_max: ask.task_weight_max,
            wait: field::wait_at_most(ask.wait_ms),
            start: ask.start,
        })
    }
}

impl From<Registration> for proto::RegisterWorkerRequest {
    fn from(worker: Registration) -> Self {
        Self {
            worker: worker.worker.to_string(),
            jobs: worker.jobs.iter().map(ToString::to_string).collect(),
            handlers: worker.handlers.iter().map(ToString::to_string).collect(),
            concurrency: worker.concurrency,
            embedded: worker.embedded,
            kind: worker.kind.name().to_owned(),
            metadata: super::frontend::strings(&worker.metadata),
        }
    }
}

impl TryFrom<proto::RegisterWorkerRequest> for Registration {
    type Error = ApiError;

    fn try_from(worker: proto::RegisterWorkerRequest) -> Result<Self, ApiError> {
        Ok(Self {
            worker: field::worker_id("worker", &worker.worker)?,
            jobs: field::job_names("jobs", &worker.jobs)?,
            handlers: handlers(worker.handlers)?,
            concurrency: worker.concurrency,
            embedded: worker.embedded,
            kind: crate::check::process_kind(Some(&worker.kind))?,
            metadata: crate::check::metadata(worker.metadata)?,
        })
    }
}

impl From<Registered> for proto::RegisterWorkerResponse {
    fn from(alive: Registered) -> Self {
        Self {
            interval_ms: field::millis(alive.interval),
            claims_start: alive.claims_start,
        }
    }
}

/// Kinds of handlers of a request.
fn handlers(kinds: Vec<String>) -> Result<Vec<Arc<str>>, ApiError> {
    field::batch("handlers", kinds.len())?;
    let bounded = |kind: String| {
        field::size("handlers", kind.len(), limits().text_bytes_max)?;
        Ok(Arc::from(kind))
    };
    kinds.into_iter().map(bounded).collect()
}

impl From<ServedJob> for proto::ServedJob {
    fn from(job: ServedJob) -> Self {
        Self {
            name: job.name.to_string(),
            handler: job.handler.as_ref().to_owned(),
        }
    }
}

impl TryFrom<proto::ServedJob> for ServedJob {
    type Error = ApiError;

    fn try_from(job: proto::ServedJob) -> Result<Self, ApiError> {
        Ok(Self {
            name: field::job_name("job.name", &job.name)?,
            handler: Arc::from(job.handler),
        })
    }
}
