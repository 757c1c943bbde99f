#![doc = include_str!("../README.md")]

mod config;
mod hash;
mod hunger;
mod job_queue;
mod messages;
mod queue;

pub use config::LocalQueueConfig;
pub use queue::LocalQueue;
