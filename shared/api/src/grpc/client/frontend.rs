//! A frontend on another host.

use std::time::Duration;

use async_trait::async_trait;
use http::uri::PathAndQuery;
use tonic::{GrpcMethod, Status, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use super::{
    Remote,
    errors::Effect::{Reads, Writes},
};
use crate::{
    ApiError, Call, Callable,
    grpc::{
        message::MESSAGE_BYTES_MAX,
        proto::{frontend_client, frontend_server::SERVICE_NAME},
        rpc::Rpc,
    },
};

/// A frontend on another host.
#[derive(Clone, Debug)]
pub struct FrontendClient {
    remote: Remote,
}

impl FrontendClient {
    pub(super) const fn new(remote: Remote) -> Self {
        Self { remote }
    }

    /// The generated client on the same connection, for requests that the types of this one do not allow.
    pub fn raw(&self) -> frontend_client::FrontendClient<Channel> {
        frontend_client::FrontendClient::new(self.remote.channel())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Sends the message of an operation, whose answer may take `wait` longer than usual.
    pub(crate) async fn send<O: Rpc>(
        &self,
        call: &Call,
        wait: Duration,
        message: O::Request,
    ) -> Result<O::Response, ApiError> {
        let mut request = outgoing(call, message);
        let method = GrpcMethod::new(SERVICE_NAME, O::NAME);
        request.extensions_mut().insert(method);
        let mut client = Grpc::new(self.remote.channel())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let answer = async {
            let path = PathAndQuery::try_from(format!("/{SERVICE_NAME}/{}", O::NAME));
            let path = path.map_err(|error| Status::internal(error.to_string()))?;
            client
                .ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            let codec = ProstCodec::<O::Request, O::Response>::default();
            client.unary(request, path, codec).await
        };
        let effect = if O::WRITES { Writes } else { Reads };
        self.remote.call(effect, wait, answer).await
    }
}

/// A request that carries the context of its call.
fn outgoing<M>(call: &Call, message: M) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    // A call without a trace context belongs to the active span of the program.
    let trace = call
        .trace
        .clone()
        .or_else(dueline_trace::active_traceparent);
    for (key, value) in [
        (Call::PRINCIPAL, &call.principal),
        (Call::TRACE, &trace),
        (Call::REQUEST_ID, &call.request_id),
    ] {
        // Text that cannot be a header cannot have come from one either, so it is left out.
        if let Some(value) = value.as_deref().and_then(|text| text.parse().ok()) {
            request.metadata_mut().insert(key, value);
        }
    }
    if let Some(remaining) = call.remaining() {
        request.set_timeout(remaining);
    }
    request
}

#[async_trait]
impl<O: Rpc> Callable<O> for FrontendClient {
    async fn call(&self, call: &Call, operation: O) -> Result<O::Output, ApiError> {
        // The server checks the input. A newer one may accept what this version would refuse.
        operation.ask(self, call).await
    }
}
