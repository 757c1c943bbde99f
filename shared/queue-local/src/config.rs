//! Settings of the local queue.

use std::time::Duration;

/// Settings of a [`crate::LocalQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalQueueConfig {
    /// How long a received message stays invisible.
    pub visibility_timeout: Duration,
    /// Most messages per job, visible and in flight together.
    pub capacity_per_job: usize,
    /// A queue that refused messages reports a refill demand when fewer than this many are visible.
    pub low_water: usize,
}

impl LocalQueueConfig {
    /// The defaults with this capacity; the low-water mark is half of it.
    pub const fn with_capacity(capacity_per_job: usize) -> Self {
        Self {
            visibility_timeout: Duration::from_secs(30),
            capacity_per_job,
            low_water: capacity_per_job / 2,
        }
    }

    /// The same settings with every number in its legal range: a queue holds at least one message, and reports a
    /// refill demand at the latest when none is visible.
    pub(crate) fn clamped(self) -> Self {
        let capacity_per_job = self.capacity_per_job.max(1);
        Self {
            visibility_timeout: self.visibility_timeout.max(Duration::from_millis(1)),
            capacity_per_job,
            low_water: self.low_water.clamp(1, capacity_per_job),
        }
    }
}

impl Default for LocalQueueConfig {
    /// 30 s and 10 000 messages per job, a few megabytes each.
    fn default() -> Self {
        Self::with_capacity(10_000)
    }
}
