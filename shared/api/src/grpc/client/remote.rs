//! One connection to a server, shared by the clients of all its services.

use std::{sync::Arc, time::Duration};

use tonic::{
    Response, Status,
    transport::{Channel, Endpoint},
};

use super::{
    ControllerClient, FrontendClient, QueueClient, StatusControllerClient,
    errors::{Effect, call_failed, no_answer},
};
use crate::{ApiError, ErrorReason, StatusControllerFailover};

/// Bytes that may be under way of one answer before the reader confirms some. The protocol's default of 64 KiB would
/// cost a round trip for each quarter of a large payload.
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// As [`STREAM_WINDOW_BYTES`], for all answers together.
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// How patient a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Longest time to wait for an answer, on top of the wait that the call itself asks for.
    pub answer_timeout: Duration,
    /// How often the server is asked whether it is still there.
    pub ping_interval: Duration,
    /// How long it may take to say so, before the connection counts as broken.
    pub ping_timeout: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(10),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(5),
        }
    }
}

/// A server somewhere else. Connects when the first call is made, and again when a call finds the connection broken.
/// Clones share the connection.
#[derive(Clone, Debug)]
pub struct Remote {
    channel: Channel,
    answer_timeout: Duration,
}

impl Remote {
    /// The server at `uri`, such as `http://10.0.0.7:8642`. Must be called within a tokio runtime.
    pub fn new(uri: &str) -> Result<Self, ApiError> {
        Self::with(uri, RemoteOptions::default())
    }

    /// As [`Remote::new`], with other patience.
    pub fn with(uri: &str, options: RemoteOptions) -> Result<Self, ApiError> {
        let bad = |error: &dyn std::fmt::Display| {
            let text = format!("'{uri}' is no address of a server: {error}");
            ApiError::invalid("uri", ErrorReason::BadUri, text)
        };
        let parsed: http::Uri = uri.parse().map_err(|error| bad(&error))?;
        if parsed.scheme_str() != Some("http") || parsed.host().is_none() {
            return Err(bad(&"it must look like http://host:port"));
        }
        let channel = Endpoint::from(parsed)
            .connect_timeout(options.connect_timeout)
            .http2_keep_alive_interval(options.ping_interval)
            .keep_alive_timeout(options.ping_timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .connect_lazy();
        Ok(Self {
            channel,
            answer_timeout: options.answer_timeout,
        })
    }

    /// The server's frontend.
    pub fn frontend(&self) -> FrontendClient {
        FrontendClient::new(self.clone())
    }

    /// The server's status controller.
    pub fn status(&self) -> StatusControllerClient {
        StatusControllerClient::new(self.clone())
    }

    /// The status controllers of several servers as one: calls go to the first that answers, see [`StatusControllerFailover`].
    pub fn status_of<U: AsRef<str>>(
        uris: impl IntoIterator<Item = U>,
    ) -> Result<StatusControllerFailover, ApiError> {
        let named = |uri: U| -> Result<(String, Arc<dyn crate::StatusController>), ApiError> {
            let status = Self::new(uri.as_ref())?.status();
            Ok((uri.as_ref().to_owned(), Arc::new(status)))
        };
        let all: Result<Vec<_>, _> = uris.into_iter().map(named).collect();
        StatusControllerFailover::new(all?)
    }

    /// The server's controller.
    pub fn work(&self) -> ControllerClient {
        ControllerClient::new(self.clone())
    }

    /// The server's queues.
    pub fn queue(&self) -> QueueClient {
        QueueClient::new(self.clone())
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Awaits one call that asks the server to wait for up to `wait`.
    pub(super) async fn call<A>(
        &self,
        effect: Effect,
        wait: Duration,
        call: impl Future<Output = Result<Response<A>, Status>>,
    ) -> Result<A, ApiError> {
        let patience = wait.saturating_add(self.answer_timeout);
        match tokio::time::timeout(patience, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(call_failed(&status, effect)),
            Err(_) => Err(no_answer(patience)),
        }
    }
}
