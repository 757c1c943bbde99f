//! Returns schedules of a job by name, page by page.

use dueline_domain::{JobName, ScheduleName};

use super::{Operation, ShownSchedule};
use crate::{ApiError, check};

/// Returns schedules of a job by name, page by page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSchedules {
    /// The job.
    pub job: JobName,
    /// Those after this name.
    pub after: Option<ScheduleName>,
    /// Most schedules on the page.
    pub limit: usize,
}

/// A page of schedules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulePage {
    /// The schedules, each with its next firing.
    pub schedules: Vec<ShownSchedule>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<ScheduleName>,
}

impl Operation for ListSchedules {
    type Output = SchedulePage;
    const NAME: &'static str = "ListSchedules";
    const WRITES: bool = false;

    fn check(&mut self) -> Result<(), ApiError> {
        check::page_limit(self.limit)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{
        RequestDefaults, Unary,
        convert::field::{count, job_name, schedule_name},
        proto, values,
    };

    impl Unary for ListSchedules {
        type Request = proto::ListSchedulesRequest;
        type Response = proto::ListSchedulesResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            let after = request.after;
            Ok(Self {
                job: job_name("job", &request.job)?,
                after: after
                    .map(|after| schedule_name("after", &after))
                    .transpose()?,
                limit: match usize::try_from(request.limit).unwrap_or(usize::MAX) {
                    0 => check::PAGE_LEN_DEFAULT,
                    limit => limit,
                },
            })
        }

        fn into_request(self) -> Self::Request {
            proto::ListSchedulesRequest {
                job: self.job.to_string(),
                after: self.after.map(|after| after.to_string()),
                limit: count(self.limit),
            }
        }

        fn into_response(page: SchedulePage) -> Self::Response {
            proto::ListSchedulesResponse {
                schedules: page.schedules.into_iter().map(Into::into).collect(),
                next: page.next.map(|next| next.to_string()),
            }
        }

        fn from_response(response: Self::Response) -> Result<SchedulePage, ApiError> {
            let next = response.next;
            Ok(SchedulePage {
                schedules: values(response.schedules)?,
                next: next.map(|next| schedule_name("next", &next)).transpose()?,
            })
        }
    }
}
