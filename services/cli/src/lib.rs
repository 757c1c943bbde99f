#![doc = include_str!("../README.md")]

mod cli;
mod client;
pub mod commands;
mod context;
pub mod exit;
mod output;
mod role;
mod sanitize;
mod units;

pub use cli::{Cli, run};
pub use context::GlobalArgs;
pub use role::Role;
