#![doc = include_str!("../README.md")]
// Everything is printed by `output`, which escapes it and does not panic when the output is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod client;
pub mod commands;
mod context;
pub mod exit;
mod fit;
mod output;
mod role;
mod sanitize;
mod server_events;
mod units;

pub use cli::{Cli, run};
pub use context::GlobalArgs;
pub use role::Role;
