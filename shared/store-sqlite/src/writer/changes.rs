//! What the writer tells those who watch: collected while a transaction is open, told after its commit. Nothing is collected
//! while nobody watches.

use dueline_domain::{ShownTask, Task, TaskId, TaskNews, Timestamp};

use super::Writer;

impl Writer {
    /// How a task looks that is about to be changed.
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

    /// Tasks of deleted jobs are not told: nobody can watch them.
    pub(super) fn removed(&mut self, job_row: i64, id: [u8; 16], now: Timestamp) {
        if !self.feed.is_watched() {
            return;
        }
        if let Some(entry) = self.jobs.iter().find(|entry| entry.row == job_row) {
            let (job, id) = (entry.job.name.clone(), TaskId::from_bytes(id));
            self.news.push(TaskNews::removed(job, id, now));
        }
    }

    /// Tells what has been committed.
    pub(super) fn tell(&mut self) {
        if !self.news.is_empty() {
            self.feed.publish(self.news.drain(..));
        }
    }
}
