#![doc = include_str!("../README.md")]

mod checker;
mod counters;
mod gate;
mod history;
mod queue;
mod site;
mod store;

pub use checker::{Broken, Checker, Expected, sometimes};
pub use counters::Counters;
pub use gate::{HostGate, HostState};
pub use history::{Entry, History, RecordingQueue, RecordingStore, What};
pub use queue::{FaultyQueue, QueueFaults};
pub use site::{Site, Switch};
pub use store::{
    DueFaults, Engine, FaultyStore, Hot, IndexFaults, LaggingStore, StoreFaults, StoreMethod,
    StoreRates,
};
