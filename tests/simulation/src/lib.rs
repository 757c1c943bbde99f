#![doc = include_str!("../README.md")]

mod bad;
mod client;
mod handler;
mod host;
mod link;
mod nemesis;
mod run;
mod scenario;
mod script;
mod world;

pub use bad::Bad;
pub use run::{first_failure, run, run_all};
pub use scenario::{Act, Blow, HostKind, Mode, Scenario, Submit};
pub use script::Script;
pub use world::Report;
