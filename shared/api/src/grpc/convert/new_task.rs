//! Submits, their answers, and changes of tasks.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    Extras, Modification, NewTask, Overrides, Policy, Priority, TaskId, Timestamp, Weight, limits,
};
use dueline_ports::{Clock as _, Rng as _};
use dueline_runtime::{SystemClock, SystemRng};

use super::{bounds, enums, job};
use crate::{ApiError, Submitted, grpc::proto};

impl From<NewTask> for proto::NewTask {
    fn from(task: NewTask) -> Self {
        Self {
            id: Some(task.id.to_string()),
            id_is_generated: !task.id_is_given,
            job: task.job.to_string(),
            run_at_ms: task.run_at.map(Timestamp::millis),
            priority: task.priority.get().into(),
            weight: Some(task.weight.get().into()),
            payload: task.payload,
            extras: task.extras.map(|extras| (*extras).into()),
        }
    }
}

impl TryFrom<proto::NewTask> for NewTask {
    type Error = ApiError;

    fn try_from(task: proto::NewTask) -> Result<Self, ApiError> {
        let id = task.id.map(|id| bounds::task_id("id", &id)).transpose()?;
        let new = Self {
            id: id.unwrap_or_else(fresh_id),
            id_is_given: id.is_some() && !task.id_is_generated,
            job: bounds::job_name("job", &task.job)?,
            run_at: bounds::timestamp_opt("run_at_ms", task.run_at_ms)?,
            priority: bounds::priority("priority", task.priority)?,
            weight: task
                .weight
                .map_or(Ok(Weight::ONE), |weight| bounds::weight("weight", weight))?,
            payload: task.payload,
            extras: task
                .extras
                .map(|extras| Extras::try_from(extras).map(Box::new))
                .transpose()?,
        };
        check_new_task(&new)?;
        Ok(new)
    }
}

/// An id for a client that sent none.
fn fresh_id() -> TaskId {
    SystemRng.task_id(SystemClock.now())
}

/// Checks the sizes of a submit.
pub(crate) fn check_new_task(task: &NewTask) -> Result<(), ApiError> {
    let limits = limits();
    bounds::size("payload", task.payload.len(), limits.payload_bytes_max)?;
    let Some(extras) = &task.extras else {
        return Ok(());
    };
    if extras.tags.len() > limits.tags_max {
        let text = format!(
            "has {} entries; at most {} are allowed",
            extras.tags.len(),
            limits.tags_max
        );
        return Err(ApiError::invalid("extras.tags", "too_many", text));
    }
    for tag in &extras.tags {
        bounds::short("extras.tags", Some(tag))?;
    }
    let details_bytes = extras.details.as_ref().map_or(0, |text| text.len());
    bounds::size(
        "extras.details_json",
        details_bytes,
        limits.details_bytes_max,
    )?;
    if let Some(details) = &extras.details {
        bounds::json_object("extras.details_json", details)?;
    }
    if let Some(overrides) = &extras.overrides {
        let policy = Policy::default().with(overrides);
        policy
            .check()
            .map_err(|error| ApiError::invalid("extras.overrides", "bad_policy", error))?;
    }
    bounds::short("extras.name", extras.name.as_ref())?;
    bounds::short("extras.key", extras.key.as_ref())?;
    bounds::short("extras.created_by", extras.created_by.as_ref())?;
    bounds::short("extras.content_type", extras.content_type.as_ref())?;
    bounds::short("extras.trace", extras.trace.as_ref())
}

impl From<Extras> for proto::Extras {
    fn from(extras: Extras) -> Self {
        Self {
            name: bounds::string_opt(extras.name),
            details_json: bounds::string_opt(extras.details),
            tags: extras
                .tags
                .iter()
                .map(|tag| tag.as_ref().to_owned())
                .collect(),
            key: bounds::string_opt(extras.key),
            created_by: bounds::string_opt(extras.created_by),
            content_type: bounds::string_opt(extras.content_type),
            trace: bounds::string_opt(extras.trace),
            overrides: extras.overrides.map(Into::into),
        }
    }
}

impl TryFrom<proto::Extras> for Extras {
    type Error = ApiError;

    fn try_from(extras: proto::Extras) -> Result<Self, ApiError> {
        Ok(Self {
            name: bounds::text_opt(extras.name),
            details: bounds::text_opt(extras.details_json),
            tags: extras.tags.into_iter().map(Arc::from).collect(),
            key: bounds::text_opt(extras.key),
            created_by: bounds::text_opt(extras.created_by),
            content_type: bounds::text_opt(extras.content_type),
            trace: bounds::text_opt(extras.trace),
            overrides: extras.overrides.map(Overrides::try_from).transpose()?,
        })
    }
}

impl From<Overrides> for proto::Overrides {
    fn from(overrides: Overrides) -> Self {
        Self {
            retries_max: overrides.retries_max,
            backoff: overrides.backoff.map(Into::into),
            heartbeat_timeout_ms: overrides.heartbeat_timeout.map(bounds::millis),
            heartbeat_increment_ms: overrides.heartbeat_increment.map(bounds::millis),
            run_timeout_ms: overrides.run_timeout.map(bounds::millis),
        }
    }
}

impl TryFrom<proto::Overrides> for Overrides {
    type Error = ApiError;

    fn try_from(overrides: proto::Overrides) -> Result<Self, ApiError> {
        Ok(Self {
            retries_max: overrides.retries_max,
            backoff: overrides
                .backoff
                .map(|given| job::backoff("extras.overrides.backoff", given))
                .transpose()?,
            heartbeat_timeout: overrides.heartbeat_timeout_ms.map(Duration::from_millis),
            heartbeat_increment: overrides.heartbeat_increment_ms.map(Duration::from_millis),
            run_timeout: overrides.run_timeout_ms.map(Duration::from_millis),
        })
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
        }
    }
}

impl TryFrom<proto::Submitted> for Submitted {
    type Error = ApiError;

    fn try_from(submitted: proto::Submitted) -> Result<Self, ApiError> {
        Ok(Self {
            job: bounds::job_name("job", &submitted.job)?,
            id: bounds::task_id("id", &submitted.id)?,
            state: enums::state_kind("state", submitted.state)?,
            run_at: bounds::timestamp("run_at_ms", submitted.run_at_ms)?,
            existed: submitted.existed,
        })
    }
}

/// A change, without the task it is for.
impl TryFrom<proto::ModifyRequest> for Modification {
    type Error = ApiError;

    fn try_from(change: proto::ModifyRequest) -> Result<Self, ApiError> {
        Ok(Self {
            run_at: bounds::timestamp_opt("run_at_ms", change.run_at_ms)?,
            priority: change
                .priority
                .map(|priority| bounds::priority("priority", priority))
                .transpose()?,
            weight: change
                .weight
                .map(|weight| bounds::weight("weight", weight))
                .transpose()?,
            payload: change
                .payload
                .map(|payload| bounds::payload("payload", payload))
                .transpose()?,
        })
    }
}

/// A change, to which the task it is for must be added.
impl From<Modification> for proto::ModifyRequest {
    fn from(change: Modification) -> Self {
        Self {
            job: String::new(),
            id: String::new(),
            run_at_ms: change.run_at.map(Timestamp::millis),
            priority: change.priority.map(Priority::get).map(Into::into),
            weight: change.weight.map(Weight::get).map(Into::into),
            payload: change.payload,
        }
    }
}
