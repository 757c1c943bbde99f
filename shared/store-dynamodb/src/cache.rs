//! A cache of task rows that this process wrote or read, so that a heartbeat or an outcome needs no read.
//!
//! A cached row may be old, because another process may have written since. So it may only lead to a write, whose
//! condition fails then.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_domain::TaskId;

use crate::row::TaskRow;

/// Most bytes of rows in the cache.
const BYTES_MAX: usize = 32 * 1024 * 1024;

type RowKey = (String, TaskId);

#[derive(Default)]
struct RowCacheState {
    /// Age, size and row.
    rows: HashMap<RowKey, (u64, usize, Arc<TaskRow>)>,
    /// Keys by age. An entry whose row has a newer age is skipped.
    ages: VecDeque<(u64, RowKey)>,
    clock: u64,
    bytes: usize,
}

/// A cache of rows, bounded by their size. It evicts rows that were written long ago.
#[derive(Default)]
pub(crate) struct RowCache(Mutex<RowCacheState>);

impl std::fmt::Debug for RowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowCache").finish_non_exhaustive()
    }
}

impl RowCache {
    fn lock(&self) -> MutexGuard<'_, RowCacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, partition: &str, id: &TaskId) -> Option<Arc<TaskRow>> {
        let state = self.lock();
        let key = (partition.to_owned(), *id);
        state.rows.get(&key).map(|(_, _, row)| row.clone())
    }

    /// Caches a row. A finished task is not cached, because no event is expected.
    pub(crate) fn put(&self, partition: &str, row: Arc<TaskRow>) {
        let key = (partition.to_owned(), row.task.id);
        if row.task.kind().is_final() {
            return self.forget(partition, &row.task.id);
        }
        let bytes = row.memory_bytes();
        let mut state = self.lock();
        state.clock += 1;
        let age = state.clock;
        let before = state.rows.insert(key.clone(), (age, bytes, row));
        state.bytes = state.bytes + bytes - before.map_or(0, |(_, bytes, _)| bytes);
        state.ages.push_back((age, key));
        while state.bytes > BYTES_MAX || state.ages.len() > 2 * state.rows.len() + 64 {
            let Some((age, key)) = state.ages.pop_front() else {
                break;
            };
            let Some((current, bytes, _)) = state.rows.get(&key) else {
                continue;
            };
            let (current, bytes) = (*current, *bytes);
            if current == age && state.bytes > BYTES_MAX {
                state.rows.remove(&key);
                state.bytes -= bytes;
            } else if current == age {
                // The row stays. Its entry moves to the end, so that the next call removes the stale entries behind it.
                state.ages.push_back((age, key));
                break;
            }
        }
    }

    pub(crate) fn forget(&self, partition: &str, id: &TaskId) {
        let mut state = self.lock();
        if let Some((_, bytes, _)) = state.rows.remove(&(partition.to_owned(), *id)) {
            state.bytes -= bytes;
        }
    }
}
