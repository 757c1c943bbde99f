//! How the operations of clients travel over gRPC: one server and one client for all of them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_domain::Policy;
use dueline_ports::{Clock, Rng};
use prost::Message;

use super::{FrontendClient, FrontendServer};
use crate::{ApiError, Call, Callable, Frontend, Operation};

/// What a server adds to requests that leave something open.
#[derive(Clone)]
pub struct RequestDefaults {
    /// What a job that is put does not set.
    pub policy: Policy,
    /// The time to which relative times are added.
    pub clock: Arc<dyn Clock>,
    /// Ids of tasks without one.
    pub rng: Arc<dyn Rng>,
}

/// An operation that travels as one message and is answered by one.
#[async_trait]
pub trait Rpc: Operation {
    /// The message of a call.
    type Request: Message + Default + 'static;
    /// The message of an answer.
    type Response: Message + Default + 'static;

    /// The server's side: reads the message, calls the frontend, and writes the answer.
    async fn answer(
        server: &FrontendServer,
        call: &Call,
        request: Self::Request,
    ) -> Result<Self::Response, ApiError>;

    /// The client's side: sends the operation, and reads the answer.
    async fn ask(self, client: &FrontendClient, call: &Call) -> Result<Self::Output, ApiError>;
}

/// An operation whose messages hold just its input and its output.
pub trait Unary: Operation {
    /// The message of a call.
    type Request: Message + Default + 'static;
    /// The message of an answer.
    type Response: Message + Default + 'static;

    /// Reads the input.
    fn from_request(request: Self::Request, defaults: &RequestDefaults) -> Result<Self, ApiError>;
    /// Writes the input.
    fn into_request(self) -> Self::Request;
    /// Writes the output.
    fn into_response(output: Self::Output) -> Self::Response;
    /// Reads the output.
    fn from_response(response: Self::Response) -> Result<Self::Output, ApiError>;

    /// How long the server may wait before it answers.
    fn wait(&self) -> Duration {
        Duration::ZERO
    }
}

#[async_trait]
impl<O: Unary> Rpc for O
where
    dyn Frontend: Callable<O>,
{
    type Request = O::Request;
    type Response = O::Response;

    async fn answer(
        server: &FrontendServer,
        call: &Call,
        request: Self::Request,
    ) -> Result<Self::Response, ApiError> {
        let operation = O::from_request(request, &server.defaults)?;
        Ok(O::into_response(
            server.frontend.call(call, operation).await?,
        ))
    }

    async fn ask(self, client: &FrontendClient, call: &Call) -> Result<Self::Output, ApiError> {
        let wait = self.wait();
        let response = client.send::<O>(call, wait, self.into_request()).await?;
        O::from_response(response)
    }
}
