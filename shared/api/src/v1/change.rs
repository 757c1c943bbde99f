//! The changes that a watch reports.

use dueline_domain::{JobName, StateKind, TaskId, WorkerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Time, as_text};
use crate::operation::{WatchPage, WatchedChange};

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangesView {
    /// The changes in their order; none when the wait was over.
    pub changes: Vec<ChangeView>,
    /// Where to go on: the `cursor` of the next call.
    pub next: String,
    /// Changes before these were missed: the cursor is too old, or of another process.
    pub gap: bool,
}

/// A change of a task. Without a state the task is not stored any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// `posted`, `changed`, `ended` or `removed`.
    pub kind: String,
    /// The job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// When it happened.
    pub at: Time,
    /// Its state since then.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "as_text::option"
    )]
    #[schema(value_type = Option<String>)]
    pub state: Option<StateKind>,
    /// When it is first due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// Its priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The number of its latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Its owner.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "as_text::option"
    )]
    #[schema(value_type = Option<String>)]
    pub owner: Option<WorkerId>,
    /// Whether its run was asked to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
    /// The position behind this change.
    pub cursor: String,
}

impl From<WatchedChange> for ChangeView {
    fn from(change: WatchedChange) -> Self {
        let news = change.news;
        let shown = news.shown.as_ref();
        Self {
            kind: news.kind.name().to_owned(),
            job: news.job,
            id: news.id,
            at: news.at.into(),
            state: shown.map(|shown| shown.state),
            run_at: shown.map(|shown| shown.run_at.into()),
            priority: shown.map(|shown| shown.priority),
            attempt: shown.and_then(|shown| shown.attempt),
            owner: shown.and_then(|shown| shown.owner.clone()),
            cancel_requested: shown.is_some_and(|shown| shown.cancel_requested),
            cursor: change.cursor.to_string(),
        }
    }
}

impl From<WatchPage> for ChangesView {
    fn from(page: WatchPage) -> Self {
        Self {
            changes: page.changes.into_iter().map(Into::into).collect(),
            next: page.next.to_string(),
            gap: page.gap,
        }
    }
}
