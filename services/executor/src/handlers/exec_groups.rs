//! The process groups of running commands, so that all can be killed when the executor's process must exit at once.

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The process groups of one executor's commands.
#[derive(Default)]
pub(crate) struct ProcessGroups {
    /// Whether no command may start any more. Locked for reading while a command starts, so that
    /// [`ProcessGroups::kill_all`] cannot run between the start of a child and its entry in `live`.
    is_closed: RwLock<bool>,
    /// Process ids of the group leaders.
    live: Mutex<BTreeSet<i32>>,
}

impl ProcessGroups {
    /// Starts a child and records its group. `None` after [`ProcessGroups::kill_all`].
    pub(super) fn spawn<E>(
        &self,
        spawn: impl FnOnce() -> Result<(Child, Option<Pid>), E>,
    ) -> Option<Result<(Child, ProcessGroup<'_>), E>> {
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
            (child, ProcessGroup { all: self, leader })
        });
        Some(spawned)
    }

    /// Kills every group and refuses new ones from then on. Returns how many groups there were.
    pub(crate) fn kill_all(&self) -> usize {
        *self
            .is_closed
            .write()
            .unwrap_or_else(PoisonError::into_inner) = true;
        // While `live` is locked, no leader is removed, so no process id in it can be reused.
        let live = self.live();
        for leader in live.iter().filter_map(|id| Pid::from_raw(*id)) {
            // Fails if all processes of the group have exited.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        live.len()
    }

    fn live(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process group of a child. Its id cannot be reused until the child has been waited for.
pub(super) struct ProcessGroup<'a> {
    all: &'a ProcessGroups,
    leader: Cell<Option<Pid>>,
}

impl ProcessGroup<'_> {
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader.get() {
            // Fails if all processes of the group have exited.
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Removes the group of a child that has been waited for; the group gets no more signals.
    pub(super) fn forget(&self) {
        if let Some(leader) = self.leader.take() {
            self.all.live().remove(&leader.as_raw_pid());
        }
    }
}

impl Drop for ProcessGroup<'_> {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.forget();
    }
}
