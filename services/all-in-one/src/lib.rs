#![doc = include_str!("../README.md")]

mod config;
mod error;
mod fleet;
#[cfg(feature = "network")]
mod health;
#[cfg(feature = "network")]
mod network;
mod node;
mod presence;
#[cfg(feature = "network")]
mod remote;
mod running;

pub use config::{NodeConfig, Role, Roles, WorkerConfig};
pub use error::StartError;
pub use node::Node;
#[cfg(feature = "network")]
pub use remote::{ControllerConfig, RemoteController, RemoteWorker};
pub use running::Drained;
