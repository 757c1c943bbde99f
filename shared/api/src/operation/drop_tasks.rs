//! Drops the tasks of a job that no worker owns.

use std::sync::Arc;

use dueline_domain::JobName;

use super::Operation;
use crate::{ApiError, check};

/// Ends the tasks of a job, or of a collection in it, that no worker owns and that wait for no other task. A call looks at a
/// bounded number of tasks; `next` of its answer is the cursor of the call that continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropTasks {
    /// The job.
    pub job: JobName,
    /// Only those with this tag.
    pub tag: Option<Arc<str>>,
    /// Why, for people.
    pub reason: Option<Arc<str>>,
    /// Where an earlier call ended.
    pub cursor: Option<Arc<str>>,
}

/// What a call has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedTasks {
    /// Tasks that it has ended.
    pub dropped: u64,
    /// Tasks that a worker has claimed, or that have ended otherwise, just before.
    pub left: u64,
    /// Where the next call continues; `None` when all tasks were looked at.
    pub next: Option<Arc<str>>,
}

impl Operation for DropTasks {
    type Output = DroppedTasks;
    const NAME: &'static str = "DropTasks";
    const WRITES: bool = true;

    fn check(&mut self) -> Result<(), ApiError> {
        check::field::short_text("tag", self.tag.as_deref())?;
        check::field::short_text("cursor", self.cursor.as_deref())?;
        check::cancel_reason(self.reason.as_deref())
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::field::{job_name, string_opt, text_opt},
        proto,
    };

    impl Unary for DropTasks {
        type Request = proto::DropTasksRequest;
        type Response = proto::DropTasksResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: job_name("job", &request.job)?,
                tag: text_opt(request.tag),
                reason: text_opt(request.reason),
                cursor: text_opt(request.cursor),
            })
        }

        fn into_request(self) -> Self::Request {
            proto::DropTasksRequest {
                job: self.job.to_string(),
                tag: string_opt(self.tag),
                reason: string_opt(self.reason),
                cursor: string_opt(self.cursor),
            }
        }

        fn into_response(done: DroppedTasks) -> Self::Response {
            proto::DropTasksResponse {
                dropped: done.dropped,
                left: done.left,
                next: string_opt(done.next),
            }
        }

        fn from_response(response: Self::Response) -> Result<DroppedTasks, ApiError> {
            Ok(DroppedTasks {
                dropped: response.dropped,
                left: response.left,
                next: text_opt(response.next),
            })
        }
    }
}
