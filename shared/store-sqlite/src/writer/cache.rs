//! Tasks that the next event will most likely be about, so that it needs no read.
//!
//! Coherent because nobody else writes; thrown away whenever a transaction is undone.

use std::collections::{HashMap, VecDeque};

use dueline_domain::{Task, TaskId};

/// Most tasks that are kept only because they were just enqueued.
const ENQUEUED_MAX: usize = 4_096;

/// Most tasks in all; beyond this nothing is added, and the file answers.
const TASKS_MAX: usize = 32_768;

/// Tasks with more bytes than this are left to the file.
const TASK_BYTES_MAX: usize = 1_024;

#[derive(Default)]
pub(super) struct Cache {
    by_id: HashMap<(i64, TaskId), (i64, Box<Task>)>,
    enqueued: VecDeque<(i64, TaskId)>,
}

impl Cache {
    /// Takes a task out: whoever changes it puts it back.
    pub(super) fn take(&mut self, job: i64, id: &TaskId) -> Option<(i64, Box<Task>)> {
        self.by_id.remove(&(job, *id))
    }

    /// Keeps a task if its next event is near: somebody owns it, or it was just handed on.
    pub(super) fn keep(&mut self, job: i64, seq: i64, task: &Task) {
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

    /// Puts back a task that was not changed.
    pub(super) fn put_back(&mut self, job: i64, seq: i64, task: Box<Task>) {
        self.by_id.insert((job, task.id), (seq, task));
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.enqueued.clear();
    }
}
