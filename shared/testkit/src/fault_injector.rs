//! The network and the faults of one host.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dueline_ports::{Rng as _, fakes::SeededRng};

use crate::{Counters, HostGate};

/// A flag that is on or off. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// A switch that is on or off.
    pub fn new(on: bool) -> Self {
        Self(Arc::new(AtomicBool::new(on)))
    }

    /// Turns the switch on or off.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::SeqCst);
    }

    /// Whether the switch is on.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Decides about the faults of one host. The faulty store and queue of the host share it.
#[derive(Clone, Debug)]
pub struct FaultInjector {
    /// The gate of the host.
    pub gate: HostGate,
    /// Whether random faults happen. Latency does not depend on it.
    pub faults: Switch,
    /// Outages. While any of them is on, every call is refused.
    pub outages: Vec<Switch>,
    /// Counts of the faults that happened.
    pub counters: Counters,
    /// The source of all random decisions.
    pub rng: Arc<SeededRng>,
}

impl FaultInjector {
    /// An injector without outages whose random decisions come from `seed`.
    pub fn new(gate: HostGate, faults: Switch, counters: Counters, seed: u64) -> Self {
        let rng = Arc::new(SeededRng::new(seed));
        Self {
            gate,
            faults,
            outages: Vec::new(),
            counters,
            rng,
        }
    }

    /// The same injector with other outages and a new seed.
    #[must_use]
    pub fn with_outages(&self, outages: &[&Switch]) -> Self {
        Self {
            outages: outages.iter().map(|outage| (*outage).clone()).collect(),
            rng: Arc::new(SeededRng::new(self.rng.next_u64())),
            ..self.clone()
        }
    }

    /// Whether any outage is on.
    pub fn has_outage(&self) -> bool {
        self.outages.iter().any(Switch::is_on)
    }

    /// Decides whether a fault of probability `per_mille` happens now. Counts the fault unless `name` is empty.
    pub fn roll(&self, name: &'static str, per_mille: u32) -> bool {
        let happens = self.faults.is_on() && self.rng.below(1_000) < u64::from(per_mille);
        if happens && !name.is_empty() {
            self.counters.count(name);
        }
        happens
    }

    /// Waits for the gate of the host and for the latency of the network.
    pub async fn cross_network(&self, latency_max: Duration) {
        self.gate.wait_until_running().await;
        let latency = self.random_duration(latency_max);
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
            self.gate.wait_until_running().await;
        }
    }

    /// A random duration of up to `max`, in whole milliseconds.
    pub fn random_duration(&self, max: Duration) -> Duration {
        let max_ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.rng.below(max_ms.saturating_add(1).max(1)))
    }
}
