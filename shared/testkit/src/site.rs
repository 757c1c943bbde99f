//! Where a faulty port stands: whose calls these are, and what decides about their faults.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dueline_ports::{Rng as _, fakes::SeededRng};

use crate::{Counters, HostGate};

/// Something that is on or off. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// A switch that is on or off.
    pub fn new(on: bool) -> Self {
        Self(Arc::new(AtomicBool::new(on)))
    }

    /// Turns it.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::SeqCst);
    }

    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// What the faulty ports of one host share.
#[derive(Clone, Debug)]
pub struct Site {
    /// The host that calls.
    pub gate: HostGate,
    /// Whether random faults happen at all; latency is always there.
    pub faults: Switch,
    /// While any of these is on, every call is refused.
    pub outages: Vec<Switch>,
    /// What happened.
    pub counters: Counters,
    /// Decides.
    pub rng: Arc<SeededRng>,
}

impl Site {
    /// A site without outages whose faults are decided by `seed`.
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

    /// The same site seen through other outages, with random numbers of its own.
    #[must_use]
    pub fn with(&self, outages: &[&Switch]) -> Self {
        Self {
            outages: outages.iter().map(|outage| (*outage).clone()).collect(),
            rng: Arc::new(SeededRng::new(self.rng.next_u64())),
            ..self.clone()
        }
    }

    /// Whether an outage lasts.
    pub fn is_out(&self) -> bool {
        self.outages.iter().any(Switch::is_on)
    }

    /// Whether a fault that happens `per_mille` of the time happens now. Counts it when it has a name.
    pub fn roll(&self, name: &'static str, per_mille: u32) -> bool {
        let happens = self.faults.is_on() && self.rng.below(1_000) < u64::from(per_mille);
        if happens && !name.is_empty() {
            self.counters.count(name);
        }
        happens
    }

    /// The way to the other side: waits for the gate and for the network.
    pub async fn travel(&self, latency_max: Duration) {
        self.gate.pass().await;
        let latency = self.up_to(latency_max);
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
            self.gate.pass().await;
        }
    }

    /// A time up to `max`, in whole milliseconds.
    pub fn up_to(&self, max: Duration) -> Duration {
        let max_ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.rng.below(max_ms.saturating_add(1).max(1)))
    }
}
