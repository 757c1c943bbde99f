#![doc = include_str!("../README.md")]

mod beat;
mod config;
mod executor;
mod fetch;
mod handler;
mod handlers;
mod lease;
mod pace;
mod pool;
mod registry;
mod reporter;
mod run;
mod runner;
mod running;
mod verdict;

pub use config::{Config, ConfigError};
pub use executor::{Counts, Deps, Executor, run};
pub use handler::{Failure, Handler, HandlerResult, Success, handler_fn};
pub use registry::{BuiltIn, HttpSettings, Registry, RegistryBuilder, RegistryError};
pub use run::StopReason;
pub use running::RunningTask;
