#![doc = include_str!("../README.md")]

mod admin;
mod client;
mod deletes;
mod job_queue;
mod managed_queue;
mod name;
mod options;
mod pack;
mod packed_messages;
mod poll;
mod quarantine;
mod queue;
mod receipt;
mod receive_buffer;
mod request_batcher;
mod request_tasks;
mod sends;
mod settle;
mod wire;

pub use admin::{Drift, QueueInfo};
pub use name::{PrefixError, QUARANTINE_SUFFIX};
pub use options::{DEFAULT_PREFIX, OpenError, SqsOptions};
pub use queue::SqsQueue;
