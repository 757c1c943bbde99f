#![doc = include_str!("../README.md")]

mod client;
mod families;
mod handler;
mod host;
mod link;
mod metrics_recorder;
mod nemesis;
mod planted_bugs;
mod probe;
mod run;
mod scenario;
mod schedules;
mod script;
mod start_delays;
mod world;

pub use planted_bugs::PlantedBug;
pub use run::{first_violation, play, run, run_all};
pub use scenario::{
    Disruption, FleetSettings, HostKind, PlannedChange, PlannedFamily, PlannedSchedule,
    PlannedSubmit, Scenario, UserAction, WorldMode,
};
pub use script::TaskScript;
pub use start_delays::{StartDelay, start_delays};
pub use world::WorldReport;
