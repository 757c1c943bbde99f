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
pub use error::{BackendError, Fault};
pub use open::{OpenedQueue, OpenedStore, open_queue, open_store};

#[cfg(feature = "aws")]
pub use {dueline_aws, dueline_queue_sqs, dueline_store_dynamodb};

/// Schemes a store URI may have.
pub const STORE_SCHEMES: &[&str] = &["sqlite", "dynamodb"];

/// Schemes a queue URI may have.
pub const QUEUE_SCHEMES: &[&str] = &["local", "sqs"];
