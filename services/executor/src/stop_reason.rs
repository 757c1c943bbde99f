//! Why a run must stop.

/// Why a run must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// The task belongs to another worker now, or has ended.
    Lost,
    /// The lease could not be renewed in time.
    Expired,
    /// The run timeout is over, or the heartbeat timeout of a task whose lease heartbeats do not extend.
    Timeout,
    /// A user requested the cancellation of the task.
    Cancelled,
    /// The executor shuts down.
    Shutdown,
}

impl StopReason {
    /// The name that logs use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Expired => "expired",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Shutdown => "shutdown",
        }
    }
}
