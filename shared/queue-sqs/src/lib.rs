#![doc = include_str!("../README.md")]

mod admin;
mod crew;
mod deletes;
mod job_queue;
mod lane;
mod ledger;
mod name;
mod options;
mod pack;
mod place;
mod poll;
mod queue;
mod receipt;
mod sends;
mod service;
mod set_aside;
mod settle;
mod shelf;
mod wire;

pub use admin::{Drift, QueueInfo};
pub use name::{PrefixError, SET_ASIDE_SUFFIX};
pub use options::{DEFAULT_PREFIX, OpenError, SqsOptions};
pub use queue::SqsQueue;
