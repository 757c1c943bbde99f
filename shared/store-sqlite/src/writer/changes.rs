//! The changes that the writer publishes: collected while a transaction is open, published after its commit. Nothing is collected
//! while no job is watched.

use dueline_domain::{ShownTask, Task, TaskId, TaskNews, Timestamp};

use super::Writer;

impl Writer {
    /// A task as it is before its change.
    pub(super) fn shown(&self, task: &Task) -> Option<ShownTask> {
        self.feed.is_watched().then(|| ShownTask::of(task))
    }

    pub(super) fn posted(&mut self, task: &Task) {
        if self.feed.is_watched() {
            self.news.push(TaskNews::posted(task));
        }
    }

    pub(super) fn moved(&mut self, before: Option<&ShownTask>, task: &Task) {
        if let Some(before) = before {
            self.news.extend(TaskNews::since(Some(before), task));
        }
    }

    /// Tasks of deleted jobs are not reported: such a job cannot be watched.
    pub(super) fn removed(&mut self, job_row: i64, id: [u8; 16], now: Timestamp) {
        if !self.feed.is_watched() {
            return;
        }
        if let Some(entry) = self.jobs.iter().find(|entry| entry.row == job_row) {
            let (job, id) = (entry.job.name.clone(), TaskId::from_bytes(id));
            self.news.push(TaskNews::removed(job, id, now));
        }
    }

    /// Publishes what has been committed.
    pub(super) fn publish(&mut self) {
        if !self.news.is_empty() {
            self.feed.publish(self.news.drain(..));
        }
    }
}
