#![doc = include_str!("../README.md")]

mod buffer;
mod config;
mod controller;
mod dispatch;
mod hand_out;
mod interest;
mod pause;
mod receive;
mod serve;
mod under_way;
mod visibility;

pub use config::{Config, Deps, Serve};
pub use controller::Controller;
pub use serve::run;
