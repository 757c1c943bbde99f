//! The process groups of the commands that run, so that none outlives a process that must end at once.

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

use crate::Failure;

/// All groups of one executor.
#[derive(Default)]
pub(crate) struct Groups {
    /// Whether nothing may begin any more. Held for reading while a command is started, so that a kill cannot come
    /// between its start and its entry here.
    is_closed: RwLock<bool>,
    /// Ids of the leaders.
    live: Mutex<BTreeSet<i32>>,
}

impl Groups {
    /// Starts a child and takes note of its group; `None` after [`Groups::kill_all`].
    pub(super) fn spawn(
        &self,
        spawn: impl FnOnce() -> Result<(Child, Option<Pid>), Failure>,
    ) -> Option<Result<(Child, Group<'_>), Failure>> {
        let is_closed = self
            .is_closed
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if *is_closed {
            return None;
        }
        let spawned = spawn().map(|(child, leader)| {
            self.live().extend(leader.map(Pid::as_raw_pid));
            let leader = Cell::new(leader);
            (child, Group { all: self, leader })
        });
        Some(spawned)
    }

    /// Kills every group, and lets none begin after that. How many there were.
    pub(crate) fn kill_all(&self) -> usize {
        *self
            .is_closed
            .write()
            .unwrap_or_else(PoisonError::into_inner) = true;
        // While this is locked no leader is forgotten.
        let live = self.live();
        for leader in live.iter().filter_map(|id| Pid::from_raw(*id)) {
            // All of it may have gone already.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        live.len()
    }

    fn live(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The child's process group. As long as the child is not waited for, its id cannot become another's.
pub(super) struct Group<'a> {
    all: &'a Groups,
    leader: Cell<Option<Pid>>,
}

impl Group<'_> {
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader.get() {
            // All of it may have gone already.
            let _ = kill_process_group(leader, signal);
        }
    }

    /// The child has gone by itself.
    pub(super) fn forget(&self) {
        if let Some(leader) = self.leader.take() {
            self.all.live().remove(&leader.as_raw_pid());
        }
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.forget();
    }
}
