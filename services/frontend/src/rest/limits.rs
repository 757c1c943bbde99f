//! Bounds of the HTTP side.

use std::time::Duration;

/// Bounds of the HTTP side; those of tasks are in [`dueline_domain::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestLimits {
    /// Largest body of an ordinary call. Larger than a payload, because JSON and base64 make text longer.
    pub body_bytes_max: usize,
    /// Largest body of a batch.
    pub batch_bytes_max: usize,
    /// Longest time for a body to arrive.
    pub body_time_max: Duration,
    /// Most calls handled at once, those that wait aside.
    pub in_flight_max: usize,
    /// Most calls that wait at once, for a task's end or for work.
    pub waiting_max: usize,
    /// Longest handling of a call, not counting the time that it asks to wait.
    pub handling_max: Duration,
}

impl Default for RestLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            batch_bytes_max: 32 * 1024 * 1024,
            body_time_max: Duration::from_secs(30),
            in_flight_max: 4096,
            waiting_max: 8192,
            handling_max: Duration::from_secs(120),
        }
    }
}
