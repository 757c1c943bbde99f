//! Workers that ask for work.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dueline_domain::{JobName, WorkerId};
use dueline_ports::{ProcessKind, WorkerRecord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Time, as_text, backoff::millis};
use crate::{ApiError, ErrorKind, ErrorReason, PollRequest, Registered, Registration, check};

/// Most names of jobs in one call.
const JOBS_MAX: usize = 10_000;

/// A worker that has room.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NextWorkRequest {
    /// Who asks: a name and something that is new at each start, as in `host-1@5f3a`.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "host-1@5f3a")]
    pub worker: WorkerId,
    /// Jobs wanted, with any handler.
    #[serde(default, with = "as_text::list")]
    #[schema(value_type = Vec<String>)]
    pub jobs: Vec<JobName>,
    /// Kinds of built-in handlers wanted, of any job.
    #[serde(default)]
    pub handlers: Vec<String>,
    /// Most tasks wanted; 1 when absent, at most 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub tasks_max: Option<usize>,
    /// Most weight wanted in total; 10000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_max: Option<u32>,
    /// Heaviest single task the worker could ever run; `weight_max` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_weight_max: Option<u32>,
    /// How long to wait for the first one; not at all when absent, at most an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3600000)]
    pub wait_ms: Option<u64>,
}

impl NextWorkRequest {
    /// Most tasks in one answer.
    pub const TASKS_MAX: usize = 1000;

    /// The request, with waits cut to `wait_max`.
    pub fn into_poll(self) -> Result<PollRequest, ApiError> {
        let served = Served::check(self.jobs, self.handlers)?;
        let tasks_max = self.tasks_max.unwrap_or(1);
        if tasks_max == 0 || tasks_max > Self::TASKS_MAX {
            let message = "must be 1 to 1000";
            return Err(ApiError::invalid(
                "tasks_max",
                ErrorReason::OutOfRange,
                message,
            ));
        }
        let weight_max = self.weight_max.unwrap_or(10_000);
        if weight_max == 0 {
            let message = "must be at least 1";
            return Err(ApiError::invalid(
                "weight_max",
                ErrorReason::OutOfRange,
                message,
            ));
        }
        let wait = Duration::from_millis(self.wait_ms.unwrap_or(0));
        check::wait("wait_ms", Some(wait))?;
        Ok(PollRequest {
            worker: self.worker,
            jobs: served.jobs,
            handlers: served.handlers,
            tasks_max,
            weight_max,
            task_weight_max: self.task_weight_max.unwrap_or(weight_max),
            wait,
            // REST has a report for the start of each run.
            start: false,
        })
    }
}

/// A worker that says that it is there.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerRegistration {
    /// A name and something that is new at each start.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "host-1@5f3a")]
    pub worker: WorkerId,
    /// Jobs it runs with code of its own.
    #[serde(default, with = "as_text::list")]
    #[schema(value_type = Vec<String>)]
    pub jobs: Vec<JobName>,
    /// Kinds of built-in handlers it runs for any job.
    #[serde(default)]
    pub handlers: Vec<String>,
    /// Most weight it runs at once; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub concurrency: Option<u32>,
    /// What it is: `executor` when absent, `controller`, `consumer`, `frontend` or `status-controller`. Only executors get tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it says about itself: at most 16 entries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl TryFrom<WorkerRegistration> for Registration {
    type Error = ApiError;

    fn try_from(registration: WorkerRegistration) -> Result<Self, ApiError> {
        let kind = check::process_kind(registration.kind.as_deref())?;
        let metadata = check::metadata(registration.metadata)?;
        let served = match kind {
            ProcessKind::Executor => Served::check(registration.jobs, registration.handlers)?,
            // It gets no tasks, whatever it names.
            _ => Served::default(),
        };
        let concurrency = registration.concurrency.unwrap_or(1);
        if concurrency == 0 {
            let message = "must be at least 1";
            return Err(ApiError::invalid(
                "concurrency",
                ErrorReason::OutOfRange,
                message,
            ));
        }
        Ok(Self {
            worker: registration.worker,
            jobs: served.jobs,
            handlers: served.handlers,
            concurrency,
            // A worker that speaks REST is another process.
            embedded: false,
            kind,
            metadata,
        })
    }
}

#[derive(Default)]
struct Served {
    jobs: Vec<JobName>,
    handlers: Vec<Arc<str>>,
}

impl Served {
    fn check(jobs: Vec<JobName>, handlers: Vec<String>) -> Result<Self, ApiError> {
        if jobs.is_empty() && handlers.is_empty() {
            let message = "name at least one job or handler";
            return Err(
                ApiError::new(ErrorKind::Invalid, ErrorReason::NoJob, message).with_field("jobs"),
            );
        }
        if jobs.len() > JOBS_MAX {
            let message = format!("at most {JOBS_MAX} are allowed");
            return Err(ApiError::invalid("jobs", ErrorReason::TooMany, message));
        }
        let known = ["exec", "http", "noop"];
        if let Some(other) = handlers.iter().find(|kind| !known.contains(&kind.as_str())) {
            let message = format!("unknown handler '{other:.64}'; known are exec, http and noop");
            return Err(ApiError::invalid(
                "handlers",
                ErrorReason::UnknownHandler,
                message,
            ));
        }
        let handlers = handlers.into_iter().map(Arc::from).collect();
        Ok(Self { jobs, handlers })
    }
}

/// Answer to a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AliveView {
    /// When to give the next one, and how often to heartbeat running tasks at least.
    pub interval_ms: u64,
}

impl From<Registered> for AliveView {
    fn from(alive: Registered) -> Self {
        Self {
            interval_ms: millis(alive.interval),
        }
    }
}

impl From<AliveView> for Registered {
    fn from(view: AliveView) -> Self {
        Self {
            interval: Duration::from_millis(view.interval_ms),
            // REST has no such field.
            claims_start: false,
        }
    }
}

/// Workers that are registered, by id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerList {
    /// The workers.
    pub workers: Vec<WorkerView>,
}

/// A worker that is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    /// Name and incarnation.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub id: WorkerId,
    /// Kind of process.
    #[schema(example = "executor")]
    pub kind: String,
    /// Jobs it runs with code of its own.
    #[serde(with = "as_text::list")]
    #[schema(value_type = Vec<String>)]
    pub jobs: Vec<JobName>,
    /// Kinds of built-in handlers it runs for any job.
    pub handlers: Vec<String>,
    /// Most weight it runs at once.
    pub concurrency: u32,
    /// Whether it lives in the server's own process.
    pub embedded: bool,
    /// What it says about itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// When it registered.
    pub started_at: Time,
    /// When it was last heard of.
    pub seen_at: Time,
}

impl From<WorkerRecord> for WorkerView {
    fn from(record: WorkerRecord) -> Self {
        Self {
            id: record.id,
            kind: record.kind.to_string(),
            jobs: record.jobs,
            handlers: record.handlers.iter().map(ToString::to_string).collect(),
            concurrency: record.concurrency,
            embedded: record.embedded,
            metadata: record
                .metadata
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
            started_at: record.started_at.into(),
            seen_at: record.seen_at.into(),
        }
    }
}

impl From<WorkerView> for WorkerRecord {
    fn from(view: WorkerView) -> Self {
        Self {
            id: view.id,
            kind: Arc::from(view.kind),
            jobs: view.jobs,
            handlers: view.handlers.into_iter().map(Arc::from).collect(),
            concurrency: view.concurrency,
            embedded: view.embedded,
            metadata: view
                .metadata
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            started_at: view.started_at.0,
            seen_at: view.seen_at.0,
        }
    }
}
