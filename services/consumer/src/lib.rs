#![doc = include_str!("../README.md")]

mod backlog;
mod config;
mod holds;
mod lateness;
mod lengths;
mod members;
mod quota;
mod refill;
mod scan;
mod service;
mod wait;
mod watchdog;

pub use config::{Config, Deps, Sharing};
pub use members::KIND as CONSUMER_KIND;
pub use service::run;
