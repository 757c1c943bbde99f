//! Returns what has changed among the tasks of a job.

use std::{sync::Arc, time::Duration};

use dueline_domain::{JobName, TaskId, TaskNews};
use dueline_ports::ChangeCursor;

use super::Operation;
use crate::{ApiError, ErrorReason, check};

/// Returns what has changed among the tasks of a job, or of one task, since a position. Waits for the first change. Without a
/// position the answer comes at once: for a job it is the present position, for one task its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadChanges {
    /// The job.
    pub job: JobName,
    /// One task of it.
    pub id: Option<TaskId>,
    /// The position that an earlier answer gave.
    pub cursor: Option<Arc<str>>,
    /// How long to wait for the first change.
    pub wait: Duration,
    /// Most changes to return.
    pub limit: usize,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchPage {
    /// The changes in their order; none when the wait was over.
    pub changes: Vec<WatchedChange>,
    /// Where to go on.
    pub next: Arc<str>,
    /// Changes before these were missed: the position is too old, or of another process. A client that keeps a picture of the job
    /// lists its tasks, and goes on from `next`.
    pub gap: bool,
}

/// A change, with the position behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedChange {
    /// The change.
    pub news: TaskNews,
    /// The position.
    pub cursor: Arc<str>,
}

const TASK_PREFIX: &str = "t1-";

impl ReadChanges {
    /// The position in the changes of a job.
    pub fn job_cursor(&self) -> Result<Option<ChangeCursor>, ApiError> {
        let cursor = self.cursor.as_deref().map(str::parse);
        cursor.transpose().map_err(|_| foreign_cursor())
    }

    /// A hash of what the reader of one task got last.
    pub fn task_cursor(&self) -> Result<Option<u64>, ApiError> {
        let parse = |text: &str| {
            let hex = text.strip_prefix(TASK_PREFIX)?;
            u64::from_str_radix(hex, 16).ok()
        };
        let cursor = self.cursor.as_deref();
        let cursor = cursor.map(|text| parse(text).ok_or_else(foreign_cursor));
        cursor.transpose()
    }

    /// The position of a reader of one task after this was reported.
    pub fn cursor_of_task(fingerprint: u64) -> Arc<str> {
        format!("{TASK_PREFIX}{fingerprint:x}").into()
    }
}

fn foreign_cursor() -> ApiError {
    let message = "is none that this watch gave out";
    ApiError::invalid("cursor", ErrorReason::InvalidCursor, message)
}

impl Operation for ReadChanges {
    type Output = WatchPage;
    const NAME: &'static str = "ReadChanges";
    const WRITES: bool = false;

    fn check(&mut self) -> Result<(), ApiError> {
        check::wait("wait", Some(self.wait))?;
        check::page(self.cursor.as_deref(), self.limit)?;
        match self.id {
            Some(_) => self.task_cursor().map(drop),
            None => self.job_cursor().map(drop),
        }
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use dueline_domain::ShownTask;

    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::{
            enums::{change_kind, state_kind},
            field::{self, job_name, millis, task_id, timestamp, worker_id},
        },
        proto,
    };

    impl Unary for ReadChanges {
        type Request = proto::ReadChangesRequest;
        type Response = proto::ReadChangesResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            let text = |text: String| (!text.is_empty()).then_some(text);
            let id = text(request.id).map(|id| task_id("id", &id)).transpose()?;
            Ok(Self {
                job: job_name("job", &request.job)?,
                id,
                cursor: text(request.cursor).map(Into::into),
                wait: Duration::from_millis(request.wait_ms),
                limit: match request.limit {
                    0 => check::PAGE_LEN_DEFAULT,
                    limit => usize::try_from(limit).unwrap_or(usize::MAX),
                },
            })
        }

        fn wait(&self) -> Duration {
            self.wait
        }

        fn into_request(self) -> Self::Request {
            proto::ReadChangesRequest {
                job: self.job.to_string(),
                id: self.id.map(|id| id.to_string()).unwrap_or_default(),
                cursor: self.cursor.map(|text| text.to_string()).unwrap_or_default(),
                wait_ms: millis(self.wait),
                limit: field::count(self.limit),
            }
        }

        fn into_response(page: WatchPage) -> Self::Response {
            proto::ReadChangesResponse {
                changes: page.changes.into_iter().map(Into::into).collect(),
                next: page.next.to_string(),
                gap: page.gap,
            }
        }

        fn from_response(response: Self::Response) -> Result<WatchPage, ApiError> {
            let changes = response.changes.into_iter().map(TryInto::try_into);
            Ok(WatchPage {
                changes: changes.collect::<Result<_, _>>()?,
                next: response.next.into(),
                gap: response.gap,
            })
        }
    }

    impl From<WatchedChange> for proto::TaskChange {
        fn from(change: WatchedChange) -> Self {
            let news = change.news;
            let shown = news.shown.map(|shown| proto::ShownTask {
                state: proto::TaskState::from(shown.state).into(),
                run_at_ms: shown.run_at.millis(),
                priority: shown.priority,
                attempt: shown.attempt,
                owner: shown
                    .owner
                    .map(|owner| owner.to_string())
                    .unwrap_or_default(),
                cancel_requested: shown.cancel_requested,
            });
            Self {
                kind: proto::ChangeKind::from(news.kind).into(),
                job: news.job.to_string(),
                id: news.id.to_string(),
                at_ms: news.at.millis(),
                shown,
                cursor: change.cursor.to_string(),
            }
        }
    }

    impl TryFrom<proto::TaskChange> for WatchedChange {
        type Error = ApiError;

        fn try_from(change: proto::TaskChange) -> Result<Self, ApiError> {
            let shown = change.shown.map(|shown| {
                let owner = Some(&*shown.owner).filter(|owner| !owner.is_empty());
                Ok::<_, ApiError>(ShownTask {
                    state: state_kind("changes.shown.state", shown.state)?,
                    run_at: timestamp("changes.shown.run_at_ms", shown.run_at_ms)?,
                    priority: shown.priority,
                    attempt: shown.attempt,
                    owner: owner
                        .map(|owner| worker_id("changes.shown.owner", owner))
                        .transpose()?,
                    cancel_requested: shown.cancel_requested,
                })
            });
            let news = TaskNews {
                kind: change_kind("changes.kind", change.kind)?,
                job: job_name("changes.job", &change.job)?,
                id: task_id("changes.id", &change.id)?,
                at: timestamp("changes.at_ms", change.at_ms)?,
                shown: shown.transpose()?,
            };
            let cursor = change.cursor.into();
            Ok(Self { news, cursor })
        }
    }
}
