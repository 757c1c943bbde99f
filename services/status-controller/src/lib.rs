#![doc = include_str!("../README.md")]

mod background;
mod claim;
mod config;
mod controller;
mod definitions;
mod discard;
mod lease_cache;
mod metrics;
mod prune;
mod reclaim;
mod recover;
mod report;
mod results;
mod silent_workers;
mod spans;
mod worker_registry;
mod workers;

pub use background::run;
pub use config::{Config, Deps};
pub use controller::StatusControllerService;
pub use recover::recover;
