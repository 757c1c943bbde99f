#![doc = include_str!("../README.md")]

mod config;
mod error;
mod fleet;
mod health;
mod node;
mod remote;
mod running;

pub use config::{NodeConfig, Role, Roles, WorkerConfig};
pub use error::StartError;
pub use node::Node;
pub use remote::{ControllerConfig, RemoteController, RemoteWorker};
pub use running::Drained;
