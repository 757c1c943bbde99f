//! Settings and dependencies of the service.

use std::{fmt, sync::Arc, time::Duration};

use dueline_ports::{Clock, Rng, Store, TaskQueue};
use dueline_runtime::{DueSignal, EndSignal, Families, Performer};

/// Settings of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Longest interval at which workers renew their registrations and heartbeat their runs.
    pub interval: Duration,
    /// After this time without a renewal, a worker's registration expires. Several times `interval`, so that a single
    /// lost call has no effect.
    pub worker_timeout: Duration,
    /// How often finished tasks past their retention are deleted.
    pub prune_period: Duration,
    /// Most tasks deleted with one call to the store.
    pub prune_batch: usize,
    /// Whether executors poll only for what they can start at once, so that claim and start are one write. For stores
    /// whose writes are expensive.
    pub claims_start: bool,
    /// Whether heartbeats are answered from memory while the lease that this process wrote last has more than half of
    /// its timeout left. A cancellation request, or the loss of a run, is then noticed up to half a heartbeat timeout
    /// later.
    pub heartbeats_coalesced: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            worker_timeout: Duration::from_secs(30),
            prune_period: Duration::from_secs(5),
            prune_batch: 1_000,
            claims_start: false,
            heartbeats_coalesced: false,
        }
    }
}

/// Dependencies of the service.
#[derive(Clone)]
pub struct Deps {
    /// Where tasks, jobs and workers are stored.
    pub store: Arc<dyn Store>,
    /// Where the messages of abandoned and reclaimed tasks are sent.
    pub queue: Arc<dyn TaskQueue>,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Makes tokens, write ids and jitter.
    pub rng: Arc<dyn Rng>,
    /// Signalled when a task becomes due again.
    pub due: Arc<DueSignal>,
    /// Signalled when a task has ended.
    pub ended: Arc<EndSignal>,
}

impl Deps {
    /// Notifies tasks of what they wait for.
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

impl fmt::Debug for Deps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deps").finish_non_exhaustive()
    }
}
