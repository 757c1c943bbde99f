#![doc = include_str!("../README.md")]

mod config;
mod fleet;
mod health;
mod node;
mod remote;

pub use config::{NodeConfig, Role, Roles, WorkerConfig};
pub use node::{Drained, Node, StartError};
pub use remote::{ControllerConfig, RemoteController, RemoteWorker};
