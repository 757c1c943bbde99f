//! Submits, their answers, and changes of tasks.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    Due, Family, Modification, NewTask, Overrides, Priority, TaskId, TaskOptions, Timestamp,
    Unique, Weight,
};

use super::{enums, field};
use crate::{
    ApiError, ErrorReason,
    grpc::proto,
    operation::Submitted,
    v1::{BackoffSpec, overrides},
};

impl From<NewTask> for proto::NewTask {
    fn from(task: NewTask) -> Self {
        let (run_at_ms, delay_ms) = match task.due {
            Due::Now => (None, None),
            Due::At(time) => (Some(time.millis()), None),
            Due::After(delay) => (None, Some(field::millis(delay))),
        };
        Self {
            id: Some(task.id.to_string()),
            id_is_generated: !task.id_is_given,
            job: task.job.to_string(),
            run_at_ms,
            delay_ms,
            priority: task.priority.get().into(),
            weight: Some(task.weight.get().into()),
            payload: task.payload,
            options: task.options.map(|options| (*options).into()),
        }
    }
}

/// The task of a submit. `new_id` makes an id for a submit without one.
pub(crate) fn new_task(
    task: proto::NewTask,
    new_id: impl FnOnce() -> TaskId,
) -> Result<NewTask, ApiError> {
    let id = task.id.map(|id| field::task_id("id", &id)).transpose()?;
    Ok(NewTask {
        id: id.unwrap_or_else(new_id),
        id_is_given: id.is_some() && !task.id_is_generated,
        job: field::job_name("job", &task.job)?,
        due: due(task.run_at_ms, task.delay_ms)?,
        priority: field::priority("priority", task.priority)?,
        weight: task
            .weight
            .map_or(Ok(Weight::ONE), |weight| field::weight("weight", weight))?,
        payload: task.payload,
        options: task
            .options
            .map(|options| TaskOptions::try_from(options).map(Box::new))
            .transpose()?,
    })
}

/// When a task is due, of which at most one form is given.
fn due(run_at_ms: Option<i64>, delay_ms: Option<u64>) -> Result<Due, ApiError> {
    match (run_at_ms, delay_ms) {
        (Some(_), Some(_)) => {
            let text = "give only one of run_at and delay_ms";
            Err(ApiError::invalid("run_at", ErrorReason::Ambiguous, text))
        }
        (Some(millis), None) => Ok(Due::At(field::timestamp("run_at", millis)?)),
        (None, Some(millis)) => Ok(Due::After(Duration::from_millis(millis))),
        (None, None) => Ok(Due::Now),
    }
}

impl From<TaskOptions> for proto::TaskOptions {
    fn from(options: TaskOptions) -> Self {
        Self {
            name: field::string_opt(options.name),
            details_json: field::string_opt(options.details),
            tags: options
                .tags
                .iter()
                .map(|tag| tag.as_ref().to_owned())
                .collect(),
            key: field::string_opt(options.key),
            created_by: field::string_opt(options.created_by),
            content_type: field::string_opt(options.content_type),
            trace: field::string_opt(options.trace),
            overrides: options.overrides.map(Into::into),
            family: options.family.map(|family| (*family).into()),
            unique: options.unique.map(|unique| (*unique).into()),
            fairness_key: field::string_opt(options.fairness_key),
        }
    }
}

impl TryFrom<proto::TaskOptions> for TaskOptions {
    type Error = ApiError;

    fn try_from(options: proto::TaskOptions) -> Result<Self, ApiError> {
        Ok(Self {
            name: field::text_opt(options.name),
            details: field::text_opt(options.details_json),
            tags: options.tags.into_iter().map(Arc::from).collect(),
            key: field::text_opt(options.key),
            unique: options
                .unique
                .map(|unique| Unique::try_from(unique).map(Box::new))
                .transpose()?,
            created_by: field::text_opt(options.created_by),
            content_type: field::text_opt(options.content_type),
            trace: field::text_opt(options.trace),
            overrides: options.overrides.map(Overrides::try_from).transpose()?,
            // They are fields of the task's message.
            original_run_at: None,
            firing: None,
            family: options
                .family
                .map(|family| Family::try_from(family).map(Box::new))
                .transpose()?,
            fairness_key: field::text_opt(options.fairness_key),
            // The store sets it.
            takes_turns: false,
        })
    }
}

impl From<Unique> for proto::Unique {
    fn from(unique: Unique) -> Self {
        Self {
            until: proto::HeldUntil::from(unique.until).into(),
            period_ms: unique.period.map(field::millis),
            on_conflict: proto::OnConflict::from(unique.on_conflict).into(),
            max_delay_ms: unique.max_delay.map(field::millis),
            replaced: unique.replaced,
        }
    }
}

impl TryFrom<proto::Unique> for Unique {
    type Error = ApiError;

    fn try_from(unique: proto::Unique) -> Result<Self, ApiError> {
        let on_conflict = enums::on_conflict("unique.on_conflict", unique.on_conflict)?;
        let until = enums::held_until("unique.until", unique.until)?;
        let is_named = unique.until != i32::from(proto::HeldUntil::Unspecified);
        Ok(Self {
            until: match is_named {
                true => until,
                false => on_conflict.default_scope(),
            },
            period: unique.period_ms.map(Duration::from_millis),
            on_conflict,
            max_delay: unique.max_delay_ms.map(Duration::from_millis),
            replaced: unique.replaced,
        })
    }
}

impl From<Overrides> for proto::Overrides {
    fn from(overrides: Overrides) -> Self {
        Self {
            retries_max: overrides.retries_max,
            backoff: overrides.backoff.map(Into::into),
            heartbeat_timeout_ms: overrides.heartbeat_timeout.map(field::millis),
            heartbeat_increment_ms: overrides.heartbeat_increment.map(field::millis),
            run_timeout_ms: overrides.run_timeout.map(field::millis),
        }
    }
}

impl TryFrom<proto::Overrides> for Overrides {
    type Error = ApiError;

    fn try_from(given: proto::Overrides) -> Result<Self, ApiError> {
        let overrides = overrides(
            given.retries_max,
            given.backoff.map(BackoffSpec::from),
            given.heartbeat_timeout_ms,
            given.heartbeat_increment_ms,
            given.run_timeout_ms,
        )?;
        Ok(overrides.unwrap_or_default())
    }
}

impl From<Submitted> for proto::Submitted {
    fn from(submitted: Submitted) -> Self {
        Self {
            job: submitted.job.to_string(),
            id: submitted.id.to_string(),
            state: enums::state_number(submitted.state),
            run_at_ms: submitted.run_at.millis(),
            existed: submitted.existed,
            replaced: submitted.replaced,
        }
    }
}

impl TryFrom<proto::Submitted> for Submitted {
    type Error = ApiError;

    fn try_from(submitted: proto::Submitted) -> Result<Self, ApiError> {
        Ok(Self {
            job: field::job_name("job", &submitted.job)?,
            id: field::task_id("id", &submitted.id)?,
            state: enums::state_kind("state", submitted.state)?,
            run_at: field::timestamp("run_at", submitted.run_at_ms)?,
            existed: submitted.existed,
            replaced: submitted.replaced,
        })
    }
}

/// The change that a request asks for at `now`.
pub(crate) fn modification(
    change: proto::ModifyRequest,
    now: Timestamp,
) -> Result<Modification, ApiError> {
    let run_at = match due(change.run_at_ms, change.delay_ms)? {
        Due::Now => None,
        due => Some(due.time(now)),
    };
    Ok(Modification {
        run_at,
        priority: change
            .priority
            .map(|priority| field::priority("priority", priority))
            .transpose()?,
        weight: change
            .weight
            .map(|weight| field::weight("weight", weight))
            .transpose()?,
        payload: change.payload,
    })
}

/// A change, to which the task it is for must be added.
impl From<Modification> for proto::ModifyRequest {
    fn from(change: Modification) -> Self {
        Self {
            job: String::new(),
            id: String::new(),
            run_at_ms: change.run_at.map(Timestamp::millis),
            delay_ms: None,
            priority: change.priority.map(Priority::get).map(Into::into),
            weight: change.weight.map(Weight::get).map(Into::into),
            payload: change.payload,
        }
    }
}
