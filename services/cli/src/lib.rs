#![doc = include_str!("../README.md")]

mod cli;
mod client;
pub mod commands;
pub mod exit;
mod output;
mod role;
mod units;

pub use cli::{Cli, GlobalArgs, run};
pub use role::Role;
