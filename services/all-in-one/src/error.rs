//! Errors at the start of a process.

use std::net::SocketAddr;

use dueline_backends::BackendError;
use dueline_ports::{QueueError, StoreError};

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store or queue cannot be opened.
    #[error("failed to open the backend")]
    Backend(#[source] BackendError),
    /// The queue exists only within this process, but the processes that would send or receive are others.
    #[error(
        "the queue 'local:' exists within one process only, and this process is not both consumer and controller, so \
         its messages would never be received; set a queue that all processes share, such as --queue sqs://PREFIX"
    )]
    LocalQueue,
    /// The jobs cannot be read from the store.
    #[error("failed to read the jobs")]
    Store(#[source] StoreError),
    /// The queue of a job cannot be created.
    #[error("failed to create the queues")]
    Queue(#[source] QueueError),
    /// The address is in use, or does not belong to this host.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The worker's settings are invalid.
    #[error("failed to set up a worker")]
    Worker(#[source] dueline_executor::ConfigError),
    /// The settings contain no server.
    #[error("failed to set up the connection to the server: no server is set")]
    NoServer,
    /// The address of the server is invalid.
    #[error("failed to set up the connection to the server")]
    Server(#[source] dueline_api::ApiError),
}
