//! The plug of a host.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// What a host is.
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

/// Decides whether the calls of a host get through. Clones are the same gate.
///
/// A killed host cannot be told from a crashed one by anything outside of it: whatever its tasks still do stays
/// inside. Death is for good; a restarted host gets a new gate.
#[derive(Clone, Debug, Default)]
pub struct HostGate(Arc<Gate>);

/// Not a watch channel: that one wakes its receivers in random order, and a test must be able to repeat itself.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<HostState>,
    changed: Notify,
}

impl HostGate {
    /// A running host.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the host is now.
    pub fn state(&self) -> HostState {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the host was killed.
    pub fn is_dead(&self) -> bool {
        self.state() == HostState::Dead
    }

    /// Holds its calls back.
    pub fn pause(&self) {
        self.set(HostState::Paused);
    }

    /// Lets its calls go.
    pub fn resume(&self) {
        self.set(HostState::Running);
    }

    /// Stops its calls for good.
    pub fn kill(&self) {
        self.set(HostState::Dead);
    }

    /// Waits until the host runs; for ever once it is dead. Cancel safe.
    pub async fn pass(&self) {
        self.reach(HostState::Running).await;
    }

    /// Waits until the host is dead. Cancel safe.
    pub async fn died(&self) {
        self.reach(HostState::Dead).await;
    }

    async fn reach(&self, state: HostState) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // Listen before looking, or a change in between is missed.
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
    async fn a_paused_host_waits_and_a_dead_one_waits_for_ever() {
        let (gate, second) = (HostGate::new(), Duration::from_secs(1));
        gate.pause();
        assert!(timeout(second, gate.pass()).await.is_err());
        gate.resume();
        gate.pass().await;
        gate.kill();
        gate.resume();
        assert!(timeout(second, gate.pass()).await.is_err());
        gate.died().await;
    }
}
