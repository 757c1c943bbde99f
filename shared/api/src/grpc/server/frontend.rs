//! The frontend over gRPC.

use std::sync::Arc;

use dueline_domain::Policy;
use dueline_ports::{Clock, Rng};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tonic::{Request, Response, Status};

use crate::{
    Call, Frontend, Watch,
    grpc::{
        proto::{self, frontend_server},
        rpc::{RequestDefaults, Rpc, Unary as _},
    },
    operation::{self, ReadChanges, with_operations},
};

/// Makes a frontend reachable.
#[derive(Clone)]
pub struct FrontendServer {
    pub(crate) frontend: Arc<dyn Frontend>,
    pub(crate) defaults: RequestDefaults,
}

impl FrontendServer {
    /// Serves `frontend`. What a job that is put does not set is as in `policy`.
    pub fn new(
        frontend: Arc<dyn Frontend>,
        policy: Policy,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        let defaults = RequestDefaults { policy, clock, rng };
        Self { frontend, defaults }
    }

    /// Answers a request with the context that the edge has put into it.
    async fn answer<O: Rpc>(
        &self,
        mut request: Request<O::Request>,
    ) -> Result<Response<O::Response>, Status> {
        let call = request.extensions_mut().remove::<Call>();
        let call = call.unwrap_or_default();
        let answer = O::answer(self, &call, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    /// Sends changes until the reader disconnects or is too slow.
    fn watch(
        &self,
        mut request: Request<proto::ReadChangesRequest>,
    ) -> Result<Response<Changes>, Status> {
        let call = request.extensions_mut().remove::<Call>();
        let query = ReadChanges::from_request(request.into_inner(), &self.defaults)?;
        let watch = Watch::for_stream(self.frontend.clone(), call.unwrap_or_default(), query)?;
        let pages = stream::unfold(Some(watch), async |watch| {
            let mut watch = watch?;
            match watch.next_page().await {
                Ok(Some(page)) => Some((Ok(ReadChanges::into_response(page)), Some(watch))),
                Ok(None) => None,
                Err(error) => Some((Err(error.into()), None)),
            }
        });
        Ok(Response::new(pages.boxed()))
    }
}

/// A stream of changes.
type Changes = BoxStream<'static, Result<proto::ReadChangesResponse, Status>>;

macro_rules! server {
    ($($method:ident: $operation:ident,)*) => {
        #[tonic::async_trait]
        impl frontend_server::Frontend for FrontendServer {
            $(
                async fn $method(
                    &self,
                    request: Request<<operation::$operation as Rpc>::Request>,
                ) -> Result<Response<<operation::$operation as Rpc>::Response>, Status> {
                    self.answer::<operation::$operation>(request).await
                }
            )*

            type WatchTasksStream = Changes;

            async fn watch_tasks(
                &self,
                request: Request<proto::ReadChangesRequest>,
            ) -> Result<Response<Self::WatchTasksStream>, Status> {
                self.watch(request)
            }
        }
    };
}
with_operations!(server);
