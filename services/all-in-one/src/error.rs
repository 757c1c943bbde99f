//! What can go wrong before anything runs.

use std::net::SocketAddr;

use dueline_backends::BackendError;
use dueline_ports::{QueueError, StoreError};

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store or queue cannot be opened.
    #[error("failed to open the backend")]
    Backend(#[source] BackendError),
    /// Messages would stay where they are sent.
    #[error(
        "the queue 'local:' lives inside one process, and this one is not consumer and controller at once: messages \
         would reach nobody; name a queue that all processes reach, such as --queue sqs://PREFIX"
    )]
    LocalQueue,
    /// The store does not answer.
    #[error("failed to read the jobs")]
    Store(#[source] StoreError),
    /// A job's queue cannot be made.
    #[error("failed to make the queues")]
    Queue(#[source] QueueError),
    /// The address is taken or not ours.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The worker's settings cannot work.
    #[error("failed to set up a worker")]
    Worker(#[source] dueline_executor::ConfigError),
    /// No server was named.
    #[error("failed to set up the connection to the server: none is named")]
    NoServer,
    /// The address of the server is wrong.
    #[error("failed to set up the connection to the server")]
    Server(#[source] dueline_api::ApiError),
}
