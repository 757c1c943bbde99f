#![doc = include_str!("../README.md")]

mod shutdown;
mod signals;
mod system;
mod tasks;

pub use shutdown::Shutdown;
pub use signals::{DueSignal, EndSignal, EndWaiter};
pub use system::{SystemClock, SystemRng, incarnation};
pub use tasks::{ServiceError, TaskGroup};
