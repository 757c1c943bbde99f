#![doc = include_str!("../README.md")]

mod error;
mod jobs;
mod lock;
mod open;
mod reader;
mod row;
mod schema;
mod store;
mod wal;
mod writer;

pub use open::{Durability, OpenError, SqliteOptions};
pub use schema::SCHEMA_VERSION;
pub use store::SqliteStore;
