#![doc = include_str!("../README.md")]

mod claim;
mod config;
mod controller;
mod definitions;
mod hand_back;
mod heartbeats;
mod metrics;
mod prune;
mod recover;
mod report;
mod run;
mod workers;

pub use config::{Config, Deps};
pub use controller::StatusController;
pub use recover::recover;
pub use run::run;
