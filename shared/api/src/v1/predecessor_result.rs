//! What the predecessors of a task have returned.

use bytes::Bytes;
use dueline_domain::{JobName, TaskAddress, TaskEnd, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    as_text,
    payload::{Forms, raw, show, show_readable},
};
use crate::{ApiError, ErrorReason, PredecessorResult};

/// What a predecessor of a task has returned.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PredecessorResultView {
    /// Its job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// How it ended: `succeeded`, `failed`, `cancelled`, `trashed`, `dropped`, `deleted` or `children_failed`.
    pub end: Option<String>,
    /// How many bytes its result has; null if it has none or was deleted since. More than 0 without a result means that
    /// the result is too large to be passed on: ask for the task.
    pub result_bytes: Option<u64>,
    /// The result, if it is JSON.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Value)]
    pub result: Option<Box<RawValue>>,
    /// The result, if it is text and no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_text: Option<String>,
    /// The result, if it is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
}

impl From<&PredecessorResult> for PredecessorResultView {
    fn from(one: &PredecessorResult) -> Self {
        let shown = one.result.as_deref().map(show_readable);
        let (shown, result_text) = shown.unwrap_or_default();
        Self {
            job: one.task.job.clone(),
            id: one.task.id,
            end: one.end.map(TaskEnd::name).map(str::to_owned),
            result_bytes: one.bytes,
            result: shown.json,
            result_text,
            result_base64: shown.base64,
        }
    }
}

impl TryFrom<PredecessorResultView> for PredecessorResult {
    type Error = ApiError;

    fn try_from(view: PredecessorResultView) -> Result<Self, ApiError> {
        let end = view.end.map(|name| {
            let unknown = || {
                let message = "is no end of a task";
                ApiError::invalid("results.end", ErrorReason::InvalidValue, message)
            };
            TaskEnd::from_name(&name).ok_or_else(unknown)
        });
        let forms = Forms {
            field: "results.result",
            json: view.result,
            base64: view.result_base64,
            text: view.result_text,
        };
        let (job, id) = (view.job, view.id);
        Ok(Self {
            task: TaskAddress { job, id },
            end: end.transpose()?,
            bytes: view.result_bytes,
            result: forms.take()?.map(|given| given.bytes),
        })
    }
}

/// The input of a task together with what its predecessors have returned, as the handler `http` sends it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct InputView {
    /// The latest checkpoint, or else the payload, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub payload: Option<Box<RawValue>>,
    /// The same if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// What the predecessors have returned, in their order.
    pub results: Vec<PredecessorResultView>,
}

impl InputView {
    /// The input of a task as JSON text.
    pub fn json(input: &[u8], content_type: Option<&str>, results: &[PredecessorResult]) -> Bytes {
        let shown = show(input, content_type);
        let view = Self {
            payload: shown.json,
            payload_base64: shown.base64,
            results: results.iter().map(Into::into).collect(),
        };
        // These fields always have a form in JSON.
        serde_json::to_vec(&view).unwrap_or_default().into()
    }
}
