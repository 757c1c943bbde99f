#![doc = include_str!("../README.md")]

mod config;
mod hash;
mod job_queue;
mod messages;
mod queue;
mod refill;

pub use config::LocalQueueConfig;
pub use queue::LocalQueue;
