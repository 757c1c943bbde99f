//! The service over a store in memory, with time that stands still unless a test moves it.

mod background;
mod bench;
mod claim;
mod counting;
mod economy;
mod heartbeats;
mod report;
mod workers;
