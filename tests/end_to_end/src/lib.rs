#![doc = include_str!("../README.md")]

mod binary;
mod client;
mod place;
mod process;
mod roles;
mod runs;
mod wait;

pub use binary::{dueline, program};
pub use client::{Answer, Client, is_final, new_id};
pub use place::Place;
pub use process::{Ended, Process, ended};
pub use roles::{Controller, Server, Worker};
pub use runs::{Mark, RunLog, exec_job};
pub use wait::{hold, pause, say, wait_until};
