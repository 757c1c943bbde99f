//! Settings and dependencies of the consumer.

use std::{sync::Arc, time::Duration};

use dueline_domain::WorkerId;
use dueline_ports::{Clock, Rng, Sinks, Store, TaskQueue};
use dueline_runtime::{DueSignal, EndSignal, Families, Performer};

/// Settings of the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Longest time between two scans of the store.
    pub poll_period: Duration,
    /// Most tasks per job in one scan.
    pub batch_max: usize,
    /// Most tasks per second that are reclaimed from silent workers, and most messages per second that are sent again.
    /// The limit leaves capacity for other work while the consumer recovers from an outage.
    pub recovery_rate_per_s: u32,
    /// How long reclaiming waits after the consumer could read the store again, also at its start, so that live workers
    /// can send a heartbeat first. A shorter timeout of the task itself takes precedence. Zero reclaims at once.
    pub reclaim_grace: Duration,
    /// How often the depths of the queues are exported as metrics; each export is one call per queue.
    pub backlog_period: Duration,
    /// How the due index is shared with other consumers of the same store; `None` reads all of it.
    pub sharing: Option<Sharing>,
}

/// How a consumer shares the due index with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// This consumer's incarnation.
    pub me: WorkerId,
    /// The interval of heartbeats and of reading the other members. A member that was silent for three intervals is
    /// gone.
    pub interval: Duration,
}

impl Default for Config {
    /// A poll period of 1 s, 1000 tasks per scan, 1000 recoveries per second, and a grace of 8 s (the default heartbeat
    /// timeout).
    fn default() -> Self {
        Self {
            poll_period: Duration::from_secs(1),
            batch_max: 1_000,
            recovery_rate_per_s: 1_000,
            reclaim_grace: Duration::from_secs(8),
            backlog_period: Duration::from_secs(15),
            sharing: None,
        }
    }
}

impl Config {
    /// The same settings, with every number raised to a usable minimum.
    pub(crate) fn clamped(self) -> Self {
        Self {
            poll_period: self.poll_period.max(Duration::from_millis(1)),
            batch_max: self.batch_max.max(1),
            recovery_rate_per_s: self.recovery_rate_per_s.max(1),
            reclaim_grace: self.reclaim_grace,
            backlog_period: self.backlog_period,
            sharing: self.sharing,
        }
    }
}

/// The dependencies of the consumer.
#[derive(Clone)]
pub struct Deps {
    /// The store of the tasks.
    pub store: Arc<dyn Store>,
    /// The queue of their messages.
    pub queue: Arc<dyn TaskQueue>,
    /// The clock that trigger times are compared with.
    pub clock: Arc<dyn Clock>,
    /// The source of tokens.
    pub rng: Arc<dyn Rng>,
    /// Announces tasks that are due before the next scan.
    pub due: Arc<DueSignal>,
    /// Wakes the calls that wait for the end of a task, for the tasks that the watchdog ends.
    pub ended: Arc<EndSignal>,
    /// Where the records of finished tasks are delivered.
    pub sinks: Arc<dyn Sinks>,
}

impl Deps {
    /// Connects tasks that wait with those that they wait for.
    pub(crate) fn families(&self) -> Families<'_> {
        Families {
            store: &*self.store,
            clock: &*self.clock,
            rng: &*self.rng,
            performer: self.effects(),
        }
    }

    /// Does the advisory effects of this service's transitions.
    pub(crate) fn effects(&self) -> Performer<'_> {
        Performer {
            queue: &*self.queue,
            due: &self.due,
            ended: &self.ended,
        }
    }
}
