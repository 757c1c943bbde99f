//! Lists, numbers and workers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use dueline_domain::{RunningCancel, StateKind, Timestamp};
use dueline_ports::{JobStats, ListQuery, Metadata, WorkerRecord};

use super::{enums, field};
use crate::{
    ApiError,
    check::{self, PAGE_LEN_DEFAULT},
    grpc::proto,
};

/// Metadata of a message.
pub(super) fn strings(metadata: &Metadata) -> HashMap<String, String> {
    let entries = metadata.iter();
    entries
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

impl From<ListQuery> for proto::ListTasksRequest {
    fn from(query: ListQuery) -> Self {
        Self {
            job: query.job.to_string(),
            states: query
                .states
                .iter()
                .copied()
                .map(enums::state_number)
                .collect(),
            tag: field::string_opt(query.tag),
            name: field::string_opt(query.name),
            key: field::string_opt(query.key),
            due_from_ms: query.due_from.map(Timestamp::millis),
            due_before_ms: query.due_before.map(Timestamp::millis),
            schedule: query.schedule.map(|schedule| schedule.to_string()),
            order: proto::ListOrder::from(query.order).into(),
            cursor: field::string_opt(query.cursor),
            limit: field::count(query.limit),
        }
    }
}

impl TryFrom<proto::ListTasksRequest> for ListQuery {
    type Error = ApiError;

    fn try_from(request: proto::ListTasksRequest) -> Result<Self, ApiError> {
        let limit = match usize::try_from(request.limit).unwrap_or(usize::MAX) {
            0 => PAGE_LEN_DEFAULT,
            limit => limit,
        };
        Ok(Self {
            job: field::job_name("job", &request.job)?,
            states: enums::state_kinds("state", &request.states)?,
            tag: field::text_opt(request.tag),
            name: field::text_opt(request.name),
            key: field::text_opt(request.key),
            due_from: field::timestamp_opt("due_from", request.due_from_ms)?,
            due_before: field::timestamp_opt("due_before", request.due_before_ms)?,
            schedule: request
                .schedule
                .map(|schedule| field::schedule_name("schedule", &schedule))
                .transpose()?,
            order: enums::list_order("order", request.order)?,
            cursor: field::text_opt(request.cursor),
            limit,
        })
    }
}

impl From<JobStats> for proto::JobStats {
    fn from(stats: JobStats) -> Self {
        let count = |(state, count)| proto::StateCount {
            state: enums::state_number(state),
            count,
        };
        Self {
            by_state: stats.by_state.into_iter().map(count).collect(),
            oldest_due_at_ms: stats.oldest_due_at.map(Timestamp::millis),
            partial: stats.partial,
            age_ms: u64::try_from(stats.age.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl TryFrom<proto::JobStats> for JobStats {
    type Error = ApiError;

    fn try_from(stats: proto::JobStats) -> Result<Self, ApiError> {
        let count = |count: proto::StateCount| {
            let state = enums::state_kind("stats.by_state", count.state)?;
            Ok((state, count.count))
        };
        let by_state: Result<BTreeMap<StateKind, u64>, ApiError> =
            stats.by_state.into_iter().map(count).collect();
        Ok(Self {
            by_state: by_state?,
            oldest_due_at: field::timestamp_opt("stats.oldest_due_at_ms", stats.oldest_due_at_ms)?,
            partial: stats.partial,
            age: Duration::from_millis(stats.age_ms),
        })
    }
}

impl From<WorkerRecord> for proto::Worker {
    fn from(worker: WorkerRecord) -> Self {
        Self {
            id: worker.id.to_string(),
            kind: worker.kind.as_ref().to_owned(),
            jobs: worker.jobs.iter().map(ToString::to_string).collect(),
            handlers: worker.handlers.iter().map(ToString::to_string).collect(),
            concurrency: worker.concurrency,
            embedded: worker.embedded,
            metadata: strings(&worker.metadata),
            started_at_ms: worker.started_at.millis(),
            seen_at_ms: worker.seen_at.millis(),
        }
    }
}

impl TryFrom<proto::Worker> for WorkerRecord {
    type Error = ApiError;

    fn try_from(worker: proto::Worker) -> Result<Self, ApiError> {
        Ok(Self {
            id: field::worker_id("worker.id", &worker.id)?,
            kind: Arc::from(worker.kind),
            jobs: field::job_names("worker.jobs", &worker.jobs)?,
            handlers: worker.handlers.into_iter().map(Arc::from).collect(),
            concurrency: worker.concurrency,
            embedded: worker.embedded,
            metadata: check::metadata(worker.metadata)?,
            started_at: field::timestamp("worker.started_at_ms", worker.started_at_ms)?,
            seen_at: field::timestamp("worker.seen_at_ms", worker.seen_at_ms)?,
        })
    }
}

impl proto::CancelRequest {
    /// What to do when the task is running.
    pub(crate) fn running_cancel(&self) -> Result<RunningCancel, ApiError> {
        enums::running_cancel("running", self.running)
    }
}
