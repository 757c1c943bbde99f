#![doc = include_str!("../README.md")]

pub mod descriptors;
mod families;
mod log_limit;
mod performer;
mod shutdown;
mod signals;
mod staged;
mod system;
mod tasks;
mod transitions;

pub use families::{Families, Follower, Linked};
pub use log_limit::LogLimit;
pub use performer::Performer;
pub use shutdown::Shutdown;
pub use signals::{DueSignal, EndSignal, EndWaiter};
pub use system::{SystemClock, SystemRng, incarnation};
pub use tasks::{ServiceError, TaskGroup, panic_text};
pub use transitions::log_transition;
