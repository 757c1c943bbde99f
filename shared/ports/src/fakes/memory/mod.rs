//! A store in memory.

mod families;
mod index;
mod jobs;
mod schedules;
mod state;
mod tasks;
mod workers;

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use dueline_domain::Task;

use self::state::MemoryContents;
use crate::LocalQuotas;

/// A store in memory. The same calls in the same order give the same results.
///
/// Every transition is checked by [`dueline_domain::check_transition`]. A broken invariant panics, so that no test
/// misses it. The contents live as long as the value and survive a simulated crash of the processes that use it.
#[derive(Default)]
pub struct MemoryStore {
    contents: Mutex<MemoryContents>,
    pub(super) quotas: LocalQuotas,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// All tasks of all jobs in the order of their submits.
    pub fn snapshot(&self) -> Vec<Task> {
        self.lock().snapshot()
    }

    fn lock(&self) -> MutexGuard<'_, MemoryContents> {
        // The lock is poisoned only by a broken invariant, which has failed its test. The contents are still complete.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
