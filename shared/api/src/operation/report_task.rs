//! What an owner says about a task that it has claimed by its id.

use dueline_domain::WorkerId;

use super::Operation;
use crate::{ApiError, Report, ReportAck, check};

/// A report of an owner, through the frontend. With a named owner the refusals are those of a board: `not_claimed` for
/// a task without an owner, `not_owner` for that of another, and not found for one that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportTask {
    /// Who the caller takes for the owner.
    pub owner: Option<WorkerId>,
    /// The report.
    pub report: Report,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedTask {
    /// The task after it.
    pub ack: ReportAck,
    /// Whether it took effect. Only an extension may not: that of a task without an owner.
    pub done: bool,
}

impl Operation for ReportTask {
    type Output = ReportedTask;
    const NAME: &'static str = "ReportTask";
    const WRITES: bool = true;

    fn check(&mut self) -> Result<(), ApiError> {
        check::action(&self.report.action)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{RequestDefaults, Unary, convert::field, proto, value};

    impl Unary for ReportTask {
        type Request = proto::ReportTaskRequest;
        type Response = proto::ReportTaskResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            let report = field::required("report", request.report)?;
            let owner = request.owner.map(|owner| check::owner(&owner));
            Ok(Self {
                owner: owner.transpose()?,
                report: report.try_into()?,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::ReportTaskRequest {
                owner: self.owner.map(|owner| owner.to_string()),
                report: Some(self.report.into()),
            }
        }

        fn into_response(reported: ReportedTask) -> Self::Response {
            proto::ReportTaskResponse {
                ack: Some(reported.ack.into()),
                done: reported.done,
            }
        }

        fn from_response(response: Self::Response) -> Result<ReportedTask, ApiError> {
            Ok(ReportedTask {
                ack: value(response.ack)?,
                done: response.done,
            })
        }
    }
}
