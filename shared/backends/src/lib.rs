#![doc = include_str!("../README.md")]

mod address;
#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "aws")]
pub mod deploy;
#[cfg(not(feature = "aws"))]
#[path = "deploy_without.rs"]
pub mod deploy;
pub mod doctor;
mod error;
mod open;
mod uri;

pub use address::{QueueAddress, StoreAddress};
pub use dueline_sinks::SinkOptions;
pub use error::{BackendError, Fault, error_chain};
pub use open::{OpenedQueue, OpenedStore, open_queue, open_sinks, open_store};

#[cfg(feature = "aws")]
pub use {dueline_aws, dueline_queue_sqs, dueline_store_dynamodb};

/// The schemes of store URIs.
pub const STORE_SCHEMES: &[&str] = &["sqlite", "dynamodb"];

/// The schemes of queue URIs.
pub const QUEUE_SCHEMES: &[&str] = &["local", "sqs"];
