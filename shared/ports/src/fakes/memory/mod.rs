//! A store in memory.

mod index;
mod jobs;
mod state;
mod tasks;
mod workers;

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use dueline_domain::Task;

use self::state::Contents;

/// A store in memory: the same calls in the same order give the same answers.
///
/// Every step is checked against [`dueline_domain::check_step`]; a broken invariant panics, so a test that uses this
/// store cannot miss one. It keeps its contents for as long as it lives, whatever happens to those who use it.
#[derive(Default)]
pub struct MemoryStore {
    contents: Mutex<Contents>,
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

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // A panic in here means a broken invariant, which the test has seen; the contents are still whole.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
