//! What a consumer needs.

use std::{sync::Arc, time::Duration};

use dueline_domain::WorkerId;
use dueline_ports::{Clock, Rng, Store, TaskQueue};
use dueline_runtime::DueSignal;

/// Settings of the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Longest time between two looks at the store.
    pub poll_period: Duration,
    /// Most tasks per job in one look.
    pub batch_max: usize,
    /// Most tasks per second that are taken back from silent workers, and most messages per second that are sent
    /// again, so that recovery after an outage leaves room for everything else.
    pub recovery_rate_per_s: u32,
    /// After the consumer was blind, at its start for one, a worker gets this long to be heard of again before its
    /// tasks are taken back; less where the task's own timeout is shorter. Zero takes them back at once.
    pub sight_grace: Duration,
    /// How often the depths of the queues are told as metrics; each look is a call per queue.
    pub backlog_period: Duration,
    /// How it shares the due partitions with other consumers of the same store; `None` reads everything.
    pub sharing: Option<Sharing>,
}

/// How a consumer shares the due partitions with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// This incarnation.
    pub me: WorkerId,
    /// How often it says that it is there, and looks who else is. One that was silent for three intervals is gone.
    pub interval: Duration,
}

impl Default for Config {
    /// One second, a thousand tasks, a thousand a second, eight seconds (the default heartbeat timeout).
    fn default() -> Self {
        Self {
            poll_period: Duration::from_secs(1),
            batch_max: 1_000,
            recovery_rate_per_s: 1_000,
            sight_grace: Duration::from_secs(8),
            backlog_period: Duration::from_secs(15),
            sharing: None,
        }
    }
}

impl Config {
    /// The same settings with every number large enough to get anything done.
    pub(crate) fn clamped(self) -> Self {
        Self {
            poll_period: self.poll_period.max(Duration::from_millis(1)),
            batch_max: self.batch_max.max(1),
            recovery_rate_per_s: self.recovery_rate_per_s.max(1),
            sight_grace: self.sight_grace,
            backlog_period: self.backlog_period,
            sharing: self.sharing,
        }
    }
}

/// What the consumer works with.
#[derive(Clone)]
pub struct Deps {
    /// Where the tasks are.
    pub store: Arc<dyn Store>,
    /// Where their messages go.
    pub queue: Arc<dyn TaskQueue>,
    /// Tells when a trigger time has passed.
    pub clock: Arc<dyn Clock>,
    /// Makes tokens.
    pub rng: Arc<dyn Rng>,
    /// Tells of tasks that are due sooner than planned.
    pub due: Arc<DueSignal>,
}
