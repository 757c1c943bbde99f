#![doc = include_str!("../README.md")]

mod buffer;
mod config;
mod controller;
mod dispatch;
mod in_flight;
mod lookahead;
mod pause;
mod receive;
mod reserve;
mod serve;
mod subscriptions;
mod visibility;
mod waiting_polls;

pub use config::{Config, Deps, Serve};
pub use controller::ControllerService;
pub use serve::run;
