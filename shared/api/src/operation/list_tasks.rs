//! Returns a page of the tasks of a job.

use dueline_ports::{ListQuery, Page};

use super::Operation;
use crate::{ApiError, check};

/// Returns a page of the tasks of a job.
#[derive(Clone, Debug)]
pub struct ListTasks(pub ListQuery);

impl Operation for ListTasks {
    type Output = Page;
    const NAME: &'static str = "ListTasks";
    const WRITES: bool = false;

    fn check(&mut self) -> Result<(), ApiError> {
        check::list_query(&self.0)
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use std::time::Duration;

    use async_trait::async_trait;
    use prost::Message as _;

    use super::*;
    use crate::{
        Call,
        grpc::{
            FrontendClient, FrontendServer, MESSAGE_BYTES_MAX, Rpc, convert::field, proto, values,
        },
    };

    #[async_trait]
    impl Rpc for ListTasks {
        type Request = proto::ListTasksRequest;
        type Response = proto::ListTasksResponse;

        async fn answer(
            server: &FrontendServer,
            call: &Call,
            request: Self::Request,
        ) -> Result<Self::Response, ApiError> {
            let mut query = ListQuery::try_from(request)?;
            loop {
                let page = server.frontend.call(call, Self(query.clone())).await?;
                let len = page.tasks.len();
                let page = proto::ListTasksResponse {
                    tasks: page.tasks.into_iter().map(Into::into).collect(),
                    next: field::string_opt(page.next),
                };
                // Tasks with large payloads get a shorter page, whose cursor tells where it ended.
                if len <= 1 || page.encoded_len() <= MESSAGE_BYTES_MAX {
                    return Ok(page);
                }
                query.limit = len / 2;
            }
        }

        async fn ask(self, client: &FrontendClient, call: &Call) -> Result<Page, ApiError> {
            let request = self.0.into();
            let answer = client.send::<Self>(call, Duration::ZERO, request).await?;
            Ok(Page {
                tasks: values(answer.tasks)?,
                next: field::text_opt(answer.next),
            })
        }
    }
}
