#![doc = include_str!("../README.md")]

mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod cost;
#[cfg(feature = "fakes")]
pub mod fakes;
mod hand_on;
mod queue;
mod share;
mod store;
mod task_ids;

pub use clock::{Clock, Rng};
pub use cost::Cost;
pub use hand_on::{apply_and_hand_on, hand_on};
pub use queue::{Delivery, Depth, QueueError, Receipt, Starving, TaskQueue};
pub use share::Share;
pub use store::{
    Applied, Command, Create, Created, DuePage, DueQuery, DueTask, JobStats, JobStore, ListQuery,
    OwnedTask, Page, Pruned, PutJob, Store, StoreError, TaskStore, WorkerRecord, WorkerStore,
};
pub use task_ids::TaskIds;
