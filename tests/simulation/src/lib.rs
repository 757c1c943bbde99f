#![doc = include_str!("../README.md")]

mod bad;
mod client;
mod delays;
mod handler;
mod host;
mod link;
mod nemesis;
mod recorder;
mod run;
mod scenario;
mod script;
mod tail;
mod world;

pub use bad::Bad;
pub use delays::{Wait, waits};
pub use run::{first_broken, play, run, run_all};
pub use scenario::{Act, Blow, Fleet, HostKind, Mode, Scenario, Submit};
pub use script::Script;
pub use world::Report;
