#![doc = include_str!("../README.md")]

mod config;
mod executor;
mod handler;
mod handler_result;
mod handlers;
mod heartbeats;
mod host_pause;
mod lease;
mod poll;
mod pool;
mod prefetch;
mod registry;
mod reporter;
mod run;
mod runner;
mod running;
mod service;
mod stop_reason;
mod verdict;

pub use config::{Config, ConfigError};
pub use executor::{Counts, Deps, Executor};
pub use handler::{Handler, handler_fn};
pub use handler_result::{Failure, HandlerResult, Success};
#[cfg(feature = "http")]
pub use handlers::http::HttpSettings;
pub use registry::{BuiltIn, Registry, RegistryBuilder, RegistryError};
pub use running::RunningTask;
pub use service::run;
pub use stop_reason::StopReason;
