#![doc = include_str!("../README.md")]

mod binary;
mod client;
mod collector;
mod process;
mod roles;
mod runs;
mod test_folder;
mod wait;

pub use binary::{dueline, program};
pub use client::{RestAnswer, RestClient, is_final, new_id};
pub use collector::{CollectedSpan, Collector};
pub use process::{ChildProcess, ExitedCommand, run_dueline};
pub use roles::{ControllerProcess, ServerProcess, WorkerProcess};
pub use runs::{RunLog, RunLogEntry, exec_job};
pub use test_folder::TestFolder;
pub use wait::{assert_stays, pause, print_note, wait_until};
