#![doc = include_str!("../README.md")]

mod apply;
mod attr;
mod blobs;
mod cache;
mod calls;
mod changes;
mod create;
mod due;
mod encode;
mod error;
mod families;
mod hint;
mod jobs;
mod keyed;
mod list;
mod list_due;
mod load;
mod open;
mod places;
mod prune;
mod quotas;
mod row;
mod schedules;
pub mod schema;
pub mod setup;
mod stats;
mod store;
#[cfg(test)]
mod tests;
mod unfinished;
mod unique;
mod workers;

pub use open::{DynamoOptions, OpenError};
pub use store::DynamoStore;
