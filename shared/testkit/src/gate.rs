//! Pauses and kills a host.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// The state of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostState {
    /// Its calls go through.
    #[default]
    Running,
    /// Its calls wait until it is resumed.
    Paused,
    /// Its calls never return.
    Dead,
}

/// Lets the calls of a host through, holds them or stops them. Clones are the same gate.
///
/// From outside, a killed host looks like a crashed one: its async tasks may continue, but their calls have no effect.
/// A killed host cannot be resumed; a restarted host gets a new gate.
#[derive(Clone, Debug, Default)]
pub struct HostGate(Arc<GateState>);

/// The state of a gate. Not a watch channel, which wakes its receivers in random order: a test must be repeatable.
#[derive(Debug, Default)]
struct GateState {
    state: Mutex<HostState>,
    changed: Notify,
}

impl HostGate {
    /// The gate of a running host.
    pub fn new() -> Self {
        Self::default()
    }

    /// The present state of the host.
    pub fn state(&self) -> HostState {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the host was killed.
    pub fn is_dead(&self) -> bool {
        self.state() == HostState::Dead
    }

    /// Holds the calls of the host until it is resumed.
    pub fn pause(&self) {
        self.set(HostState::Paused);
    }

    /// Lets the calls of the host through again.
    pub fn resume(&self) {
        self.set(HostState::Running);
    }

    /// Stops the calls of the host for good.
    pub fn kill(&self) {
        self.set(HostState::Dead);
    }

    /// Waits until the host runs. Never returns for a dead host. Cancel safe.
    pub async fn wait_until_running(&self) {
        self.wait_for(HostState::Running).await;
    }

    /// Waits until the host is dead. Cancel safe.
    pub async fn wait_until_dead(&self) {
        self.wait_for(HostState::Dead).await;
    }

    async fn wait_for(&self, state: HostState) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // Register before reading the state, so that no change in between is missed.
            changed.as_mut().enable();
            if self.state() == state {
                return;
            }
            changed.await;
        }
    }

    fn set(&self, next: HostState) {
        {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            if *state == HostState::Dead {
                return;
            }
            *state = next;
        }
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_calls_of_a_paused_host_wait_and_those_of_a_dead_host_never_return() {
        let (gate, second) = (HostGate::new(), Duration::from_secs(1));
        gate.pause();
        assert!(timeout(second, gate.wait_until_running()).await.is_err());
        gate.resume();
        gate.wait_until_running().await;
        gate.kill();
        gate.resume();
        assert!(timeout(second, gate.wait_until_running()).await.is_err());
        gate.wait_until_dead().await;
    }
}
