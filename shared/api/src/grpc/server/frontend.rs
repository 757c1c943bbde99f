//! The frontend over gRPC.

use std::sync::Arc;

use dueline_domain::Policy;
use dueline_ports::{Clock, Rng};
use tonic::{Request, Response, Status};

use crate::{
    Call, Frontend,
    grpc::{
        proto::frontend_server,
        rpc::{RequestDefaults, Rpc},
    },
    operation::{self, with_operations},
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
}

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
        }
    };
}
with_operations!(server);
