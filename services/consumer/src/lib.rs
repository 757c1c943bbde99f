#![doc = include_str!("../README.md")]

mod backlog;
mod backoffs;
mod config;
mod effects;
mod fair_share;
mod families;
mod lateness;
mod members;
mod queue_lengths;
mod quota;
mod quota_bucket;
mod refill;
mod running;
mod scan;
mod schedules;
mod service;
mod token_bucket;
mod wait;
mod watchdog;

pub use config::{Config, Deps, Sharing};
pub use members::KIND as CONSUMER_KIND;
pub use service::run;
