//! What connects a task with other tasks.

use dueline_domain::TaskAddress;
use dueline_domain::{Family, JobName, Predecessor, TaskEnd, TaskId, TriggerOn};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::as_text;
use crate::{ApiError, check::field};

/// A task to wait for: a predecessor, or the parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PredecessorSpec {
    /// Its job; that of the task that waits when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The task.
    #[schema(value_type = uuid::Uuid)]
    pub id: String,
}

/// The family of a submit; `None` if it asks for none.
pub(super) fn family(
    job: &JobName,
    parent: Option<PredecessorSpec>,
    after: Option<Vec<PredecessorSpec>>,
    trigger_on: Option<&str>,
    fail_on_child: bool,
) -> Result<Option<Box<Family>>, ApiError> {
    let rule = trigger_on.map(|name| {
        let unknown = || {
            let known = TriggerOn::ALL.map(TriggerOn::name).join(", ");
            let message = format!("must be one of {known}");
            ApiError::invalid("trigger_on", "invalid_value", message)
        };
        TriggerOn::from_name(name).ok_or_else(unknown)
    });
    let predecessor = |field: &'static str, spec: PredecessorSpec| {
        let named = spec.job.map(|name| {
            JobName::parse(&name).map_err(|error| ApiError::invalid(field, "invalid_name", error))
        });
        Ok(Predecessor::open(TaskAddress {
            job: named.transpose()?.unwrap_or_else(|| job.clone()),
            id: field::task_id(field, &spec.id)?,
        }))
    };
    let after = after.unwrap_or_default().into_iter();
    let after = after.map(|one| predecessor("after", one));
    let family = Family {
        after: after.collect::<Result<_, ApiError>>()?,
        trigger_on: rule.transpose()?.unwrap_or_default(),
        parent: parent.map(|one| predecessor("parent", one)).transpose()?,
        fail_on_child,
        ..Family::default()
    };
    Ok((family != Family::default()).then(|| Box::new(family)))
}

/// A task that the shown one waits for, or has waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PredecessorView {
    /// Its job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// How it ended, once the task that waits has been told: `succeeded`, `failed`, `cancelled`, `trashed`, `dropped`,
    /// `deleted` or `children_failed`.
    pub end: Option<String>,
}

impl From<&Predecessor> for PredecessorView {
    fn from(predecessor: &Predecessor) -> Self {
        Self {
            job: predecessor.task.job.clone(),
            id: predecessor.task.id,
            end: predecessor.end.map(TaskEnd::name).map(str::to_owned),
        }
    }
}
