#![doc = include_str!("../README.md")]

mod config;
mod quota;
mod refill;
mod scan;
mod service;
mod wait;
mod watchdog;

pub use config::{Config, Deps};
pub use service::run;
