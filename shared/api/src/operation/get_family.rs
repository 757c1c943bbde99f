//! Returns a page of the family of a task.

use std::sync::Arc;

use dueline_domain::{Children, EdgeKind, JobName, StateKind, TaskAddress, TaskId, Timestamp};

use super::Operation;
use crate::{ApiError, check};

/// Returns a page of the family of a task: the task, and everything that waits for it, each right below what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetFamily {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// Where the previous page ended.
    pub cursor: Option<Arc<str>>,
    /// Most members on the page.
    pub limit: usize,
    /// Whether to find the critical path, for which the whole family is read.
    pub critical_path: bool,
}

/// A page of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyPage {
    /// The members. One that waits for several others is shown once.
    pub members: Vec<FamilyMember>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Arc<str>>,
    /// The chain of members that determined when the last member of the whole family ended, or will determine that. Empty
    /// unless it was asked for.
    pub critical_path: Vec<PathStep>,
}

/// A member on the critical path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// The task.
    pub task: TaskAddress,
    /// Its state.
    pub state: StateKind,
    /// When its latest run began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When it will end, by the durations of other runs, if it has not ended.
    pub expected_at: Option<Timestamp>,
}

/// A task among those that wait for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyMember {
    /// The task.
    pub task: TaskAddress,
    /// How far it is below the first.
    pub level: u32,
    /// The one above it, and what it is to that one; `None` for the first.
    pub above: Option<(EdgeKind, TaskAddress)>,
    /// Its state; `None` if it was deleted.
    pub state: Option<StateKind>,
    /// Its name for people.
    pub name: Option<Arc<str>>,
    /// Why it last failed, was cancelled, trashed or dropped.
    pub error: Option<Arc<str>>,
    /// What is known of its children.
    pub children: Children,
}

impl Operation for GetFamily {
    type Output = FamilyPage;
    const NAME: &'static str = "GetFamily";
    const WRITES: bool = false;

    fn check(&mut self) -> Result<(), ApiError> {
        check::page(self.cursor.as_deref(), self.limit)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::field::{job_name, string_opt, task_id, text_opt},
        proto,
    };

    impl Unary for GetFamily {
        type Request = proto::GetFamilyRequest;
        type Response = proto::GetFamilyResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                id: task_id("id", &request.id)?,
                cursor: text_opt(request.cursor),
                limit: match request.limit {
                    0 => check::PAGE_LEN_DEFAULT,
                    limit => usize::try_from(limit).unwrap_or(usize::MAX),
                },
                critical_path: request.critical_path,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::GetFamilyRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
                cursor: string_opt(self.cursor),
                limit: u32::try_from(self.limit).unwrap_or(u32::MAX),
                critical_path: self.critical_path,
            }
        }

        fn into_response(page: FamilyPage) -> Self::Response {
            proto::GetFamilyResponse {
                members: page.members.into_iter().map(Into::into).collect(),
                next: string_opt(page.next),
                critical_path: page.critical_path.into_iter().map(Into::into).collect(),
            }
        }

        fn from_response(response: Self::Response) -> Result<FamilyPage, ApiError> {
            Ok(FamilyPage {
                members: crate::grpc::values(response.members)?,
                next: text_opt(response.next),
                critical_path: crate::grpc::values(response.critical_path)?,
            })
        }
    }
}
