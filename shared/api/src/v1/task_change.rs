//! Changes of tasks that no worker owns.

use dueline_domain::{Due, Modification, RunningCancel, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    PrioritySpec, Time,
    payload::{Forms, raw},
    task_submit::{due, priority, weight},
};
use crate::ApiError;

/// What to change about a task; what is left out stays, and so does the media type of the payload.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskChange {
    /// New due time; a past one means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// New due time, from now. Not together with `run_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// New priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<PrioritySpec>,
    /// New weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub weight: Option<i64>,
    /// New payload, as JSON.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Value)]
    pub payload: Option<Box<RawValue>>,
    /// New payload, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// New payload, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_text: Option<String>,
}

impl TaskChange {
    /// The change, not checked yet: [`crate::check::modification`]. A delay counts from `now`.
    pub fn into_modification(self, now: Timestamp) -> Result<Modification, ApiError> {
        let forms = Forms {
            field: "payload",
            json: self.payload,
            base64: self.payload_base64,
            text: self.payload_text,
        };
        Ok(Modification {
            run_at: match due(self.run_at, self.delay_ms)? {
                Due::Now => None,
                due => Some(due.time(now)),
            },
            priority: priority(self.priority)?,
            weight: weight(self.weight)?,
            payload: forms.take()?.map(|given| given.bytes),
        })
    }
}

/// How to cancel.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// What to do when a worker owns the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningSpec>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether everything that waits for the task, or for one of those, is cancelled too. Runs are asked to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub family: bool,
}

/// What cancelling does to a task that a worker owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunningSpec {
    /// The call is refused.
    Refuse,
    /// The worker is asked to stop, with the answer to its next heartbeat.
    Request,
}

impl From<RunningSpec> for RunningCancel {
    fn from(spec: RunningSpec) -> Self {
        match spec {
            RunningSpec::Refuse => Self::Refuse,
            RunningSpec::Request => Self::Request,
        }
    }
}
