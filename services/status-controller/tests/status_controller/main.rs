//! The service over a store in memory, under paused time.

mod background;
mod bench;
mod claim;
mod counting;
mod economy;
mod lease_cache;
mod report;
mod workers;
