#![doc = include_str!("../README.md")]

mod client;
mod engine_clients;
mod fleet;
mod history;
mod machine;
mod member;
mod numbers;
mod resources;

pub use client::{FleetClient, RetriedAnswer};
pub use engine_clients::EngineClients;
pub use fleet::{Fleet, FleetPlan};
pub use history::{HistoryTally, SubmittedTask, check_history};
pub use machine::{MachineLock, exclusive_machine, shared_machine};
pub use member::{FleetMember, FleetRole};
pub use numbers::{late_ms, millis, number, percentile, text};
pub use resources::FleetResources;
