//! What the service is told, and what it works with.

use std::{fmt, sync::Arc, time::Duration};

use dueline_ports::{Clock, Rng, Store, TaskQueue};
use dueline_runtime::{DueSignal, EndSignal};

/// Settings of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How often workers are told to give a sign of life and to heartbeat at least.
    pub interval: Duration,
    /// A worker not heard of for this long is taken off the list; several times `interval`, so that one lost call
    /// does not make it flicker.
    pub worker_forgotten_after: Duration,
    /// How often finished tasks past their retention are looked for.
    pub prune_period: Duration,
    /// Most tasks deleted with one call of the store.
    pub prune_batch: usize,
    /// Whether executors are told to ask only for what they can begin at once, so that claim and start are one
    /// write: for stores where each write costs money.
    pub claims_start: bool,
    /// Whether heartbeats are answered from memory while the lease that this process wrote last has more than half of
    /// its timeout left. A cancel request, or the loss of a run, is then noticed up to half a heartbeat timeout later.
    pub heartbeats_coalesced: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            worker_forgotten_after: Duration::from_secs(30),
            prune_period: Duration::from_secs(5),
            prune_batch: 1_000,
            claims_start: false,
            heartbeats_coalesced: false,
        }
    }
}

/// What the service works with.
#[derive(Clone)]
pub struct Deps {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// Where tasks that come back go.
    pub queue: Arc<dyn TaskQueue>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Makes tokens, names of writes and jitter.
    pub rng: Arc<dyn Rng>,
    /// Told when a task is due again.
    pub due: Arc<DueSignal>,
    /// Told when a task has ended.
    pub ended: Arc<EndSignal>,
}

impl fmt::Debug for Deps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deps").finish_non_exhaustive()
    }
}
