#![doc = include_str!("../README.md")]

mod checker;
mod counters;
mod fault_injector;
mod gate;
mod history;
mod queue;
mod sinks;
mod store;

pub use checker::{Checker, PropertyViolation, RunExpectations, count_events};
pub use counters::Counters;
pub use fault_injector::{FaultInjector, Switch};
pub use gate::{HostGate, HostState};
pub use history::{EventHistory, HistoryEntry, HistoryEvent, RecordingQueue, RecordingStore};
pub use queue::{FaultyQueue, QueueFaults};
pub use sinks::FaultySinks;
pub use store::{
    DueFaults, FaultyStore, HotSpot, IndexFaults, LaggingStore, StoreEngine, StoreFaults,
    StoreMethod, StoreRates,
};
