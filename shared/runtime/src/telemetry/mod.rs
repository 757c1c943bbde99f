//! What a process tells about itself: log lines and metrics.

mod logs;
mod metrics;

pub use logs::{TelemetryError, TelemetryGuard, init, subscriber};
pub use metrics::Metrics;
