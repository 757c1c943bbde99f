//! Dropping the tasks of a job.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::operation::DroppedTasks;

/// Which tasks of a job to drop. All fields may be left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DropRequest {
    /// Only those with this tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Why; stored with each task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `next` of the previous answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// What a call has dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DroppedView {
    /// Tasks that it has ended.
    pub dropped: u64,
    /// Tasks that a worker has claimed, or that have ended otherwise, just before.
    pub left: u64,
    /// The cursor of the call that continues; absent when all tasks were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<DroppedTasks> for DroppedView {
    fn from(done: DroppedTasks) -> Self {
        Self {
            dropped: done.dropped,
            left: done.left,
            next: done.next.map(|next| next.to_string()),
        }
    }
}
