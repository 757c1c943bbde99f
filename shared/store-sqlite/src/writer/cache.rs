//! A cache of the tasks whose next event is expected soon, so that the event needs no read.
//!
//! The cache is coherent because only the writer thread writes. It is cleared when a transaction is rolled back.

use std::collections::{HashMap, VecDeque};

use dueline_domain::{Task, TaskId};

/// Most enqueued tasks in the cache.
const ENQUEUED_MAX: usize = 4_096;

/// Most tasks in all. A full cache takes no further task; events of those read the file.
const TASKS_MAX: usize = 32_768;

/// Largest payload and checkpoint of a cached task, together.
const TASK_BYTES_MAX: usize = 1_024;

#[derive(Default)]
pub(super) struct TaskCache {
    by_id: HashMap<(i64, TaskId), (i64, Box<Task>)>,
    enqueued: VecDeque<(i64, TaskId)>,
}

impl TaskCache {
    /// Removes a task from the cache; the caller inserts it again after the event.
    pub(super) fn take(&mut self, job: i64, id: &TaskId) -> Option<(i64, Box<Task>)> {
        self.by_id.remove(&(job, *id))
    }

    /// Caches a task if its next event is expected soon: a worker owns it, or it was just enqueued.
    pub(super) fn insert(&mut self, job: i64, seq: i64, task: &Task) {
        let kind = task.kind();
        let bytes = task.payload.len() + task.checkpoint.as_ref().map_or(0, bytes::Bytes::len);
        if bytes > TASK_BYTES_MAX || self.by_id.len() >= TASKS_MAX {
            return;
        }
        let key = (job, task.id);
        if kind == dueline_domain::StateKind::Enqueued {
            if self.enqueued.len() >= ENQUEUED_MAX
                && let Some(oldest) = self.enqueued.pop_front()
                && let Some((_, old)) = self.by_id.get(&oldest)
                && !old.kind().is_owned()
            {
                self.by_id.remove(&oldest);
            }
            self.enqueued.push_back(key);
        } else if !kind.is_owned() {
            return;
        }
        self.by_id.insert(key, (seq, Box::new(task.clone())));
    }

    /// Inserts a task that was taken and has not changed.
    pub(super) fn reinsert(&mut self, job: i64, seq: i64, task: Box<Task>) {
        self.by_id.insert((job, task.id), (seq, task));
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.enqueued.clear();
    }
}
