//! Returns a page of the tasks of a job.

use dueline_ports::{ListQuery, Page};

use super::Operation;
use crate::{ApiError, check};

/// Returns a page of the tasks of a job. A page may have fewer tasks than its limit and go on after them: where the tasks are
/// large, and where the store has to pass over many tasks that do not match.
#[derive(Clone, Debug)]
pub struct ListTasks(pub ListQuery);

impl Operation for ListTasks {
    type Output = Page;
    const NAME: &'static str = "ListTasks";
    const WRITES: bool = false;

    fn check(&mut self) -> Result<(), ApiError> {
        check::list_query(&mut self.0)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::grpc::{RequestDefaults, Unary, convert::field, proto, values};

    impl Unary for ListTasks {
        type Request = proto::ListTasksRequest;
        type Response = proto::ListTasksResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            ListQuery::try_from(request).map(Self)
        }

        fn into_request(self) -> Self::Request {
            self.0.into()
        }

        fn into_response(page: Page) -> Self::Response {
            proto::ListTasksResponse {
                tasks: page.tasks.into_iter().map(Into::into).collect(),
                next: field::string_opt(page.next),
            }
        }

        fn from_response(response: Self::Response) -> Result<Page, ApiError> {
            Ok(Page {
                tasks: values(response.tasks)?,
                next: field::text_opt(response.next),
            })
        }
    }
}
