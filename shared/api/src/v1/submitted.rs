//! Answers to submits.

use dueline_domain::{JobName, StateKind, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Problem, Time, as_text};
use crate::{ApiError, operation::Submitted};

/// A stored task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmittedView {
    /// The job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// Its state.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "enqueued")]
    pub state: StateKind,
    /// When it is due.
    pub run_at: Time,
    /// Whether an earlier submit had made it.
    pub existed: bool,
    /// Whether this submit has replaced its content.
    #[serde(default)]
    pub replaced: bool,
}

impl From<Submitted> for SubmittedView {
    fn from(submitted: Submitted) -> Self {
        Self {
            job: submitted.job,
            id: submitted.id,
            state: submitted.state,
            run_at: submitted.run_at.into(),
            existed: submitted.existed,
            replaced: submitted.replaced,
        }
    }
}

impl From<SubmittedView> for Submitted {
    fn from(view: SubmittedView) -> Self {
        Self {
            job: view.job,
            id: view.id,
            state: view.state,
            run_at: view.run_at.0,
            existed: view.existed,
            replaced: view.replaced,
        }
    }
}

/// Answers to a batch, in its order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchResult {
    /// One per item.
    pub results: Vec<BatchItem>,
}

/// Answer to one item of a batch: a task or an error.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchItem {
    /// Its place in the batch, from 0.
    pub index: usize,
    /// The task.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub id: Option<TaskId>,
    /// Its state.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub state: Option<StateKind>,
    /// When it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// Whether an earlier submit had made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existed: Option<bool>,
    /// Whether this item has replaced its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<bool>,
    /// Why it was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

impl BatchItem {
    /// The answer to the item at `index`.
    pub fn new(index: usize, result: Result<Submitted, ApiError>) -> Self {
        let (submitted, error) = match result {
            Ok(submitted) => (Some(submitted), None),
            Err(error) => (None, Some(Problem::from(&error))),
        };
        let submitted = submitted.as_ref();
        Self {
            index,
            id: submitted.map(|s| s.id),
            state: submitted.map(|s| s.state),
            run_at: submitted.map(|s| s.run_at.into()),
            existed: submitted.map(|s| s.existed),
            replaced: submitted.map(|s| s.replaced).filter(|replaced| *replaced),
            error,
        }
    }
}
