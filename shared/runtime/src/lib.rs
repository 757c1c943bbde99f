#![doc = include_str!("../README.md")]

pub mod config;
mod shutdown;
mod signals;
mod system;
mod tasks;
pub mod telemetry;

pub use config::{ConfigArgs, ConfigError, Settings};
pub use shutdown::Shutdown;
pub use signals::{DueSignal, EndSignal, EndWaiter};
pub use system::{SystemClock, SystemRng, incarnation};
pub use tasks::{ServiceError, TaskGroup, panic_text};
pub use telemetry::{Metrics, TelemetryGuard};
