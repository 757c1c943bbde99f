//! Tasks that this process wrote last, so that a claim's heartbeat or a run's end need not read first.
//!
//! What is here may be old: another process may have written since. So nothing is concluded from it but a write, whose
//! condition fails if it is old.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_domain::TaskId;

use crate::row::Row;

/// Most bytes of tasks kept.
const BYTES_MAX: usize = 32 * 1024 * 1024;

type Key = (String, TaskId);

#[derive(Default)]
struct Kept {
    rows: HashMap<Key, (u64, usize, Arc<Row>)>,
    /// By age; an entry that was written again since is skipped.
    ages: VecDeque<(u64, Key)>,
    clock: u64,
    bytes: usize,
}

/// A bounded memory of rows.
#[derive(Default)]
pub(crate) struct Written(Mutex<Kept>);

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Written").finish_non_exhaustive()
    }
}

impl Written {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, partition: &str, id: &TaskId) -> Option<Arc<Row>> {
        let kept = self.lock();
        let key = (partition.to_owned(), *id);
        kept.rows.get(&key).map(|(_, _, row)| row.clone())
    }

    /// Keeps a row that was just written. A finished task is not kept: nothing follows.
    pub(crate) fn put(&self, partition: &str, row: Arc<Row>) {
        let key = (partition.to_owned(), row.task.id);
        if row.task.kind().is_final() {
            return self.forget(partition, &row.task.id);
        }
        let weight = row.weight();
        let mut kept = self.lock();
        kept.clock += 1;
        let age = kept.clock;
        let before = kept.rows.insert(key.clone(), (age, weight, row));
        kept.bytes = kept.bytes + weight - before.map_or(0, |(_, weight, _)| weight);
        kept.ages.push_back((age, key));
        while kept.bytes > BYTES_MAX || kept.ages.len() > 2 * kept.rows.len() + 64 {
            let Some((age, key)) = kept.ages.pop_front() else {
                break;
            };
            let Some((current, weight, _)) = kept.rows.get(&key) else {
                continue;
            };
            let (current, weight) = (*current, *weight);
            if current == age && kept.bytes > BYTES_MAX {
                kept.rows.remove(&key);
                kept.bytes -= weight;
            } else if current == age {
                // Still wanted: it goes to the end of the line.
                kept.ages.push_back((age, key));
                break;
            }
        }
    }

    pub(crate) fn forget(&self, partition: &str, id: &TaskId) {
        let mut kept = self.lock();
        if let Some((_, weight, _)) = kept.rows.remove(&(partition.to_owned(), *id)) {
            kept.bytes -= weight;
        }
    }
}
