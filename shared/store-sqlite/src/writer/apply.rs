//! `apply`: reads a task, decides the transition and writes it. This is one atomic step because only this thread
//! writes.

use dueline_domain::{Event, Job, JobName, StateKind, Task, Timestamp};
use dueline_ports::{Applied, Command, StoreError};

use super::{ItemError, Writer};
use crate::row::{self, BlobKind, StoredTask};

impl Writer {
    pub(crate) fn apply(&mut self, now: Timestamp, command: Command) -> Result<Applied, ItemError> {
        let Some(entry) = self.jobs.get(&command.job) else {
            return Err(StoreError::no_task(&command.id).into());
        };
        let (job_row, job) = (entry.row, entry.job.clone());
        let (seq, mut task, is_whole) = match self.cache.take(job_row, &command.id) {
            Some((seq, task)) => (seq, task, true),
            None => match self.read(&job.name, job_row, &command)? {
                Some((stored, is_whole)) => (stored.seq, Box::new(stored.task), is_whole),
                None => return Err(StoreError::no_task(&command.id).into()),
            },
        };
        if task.write == command.write {
            self.cache_whole(job_row, seq, &task, is_whole);
            return Ok(Applied {
                task,
                repeated: true,
            });
        }
        let decided = dueline_domain::apply(&task, &job.policy, &command.event, command.write, now);
        let transition = match decided {
            Ok(transition) => transition,
            Err(rejected) => {
                if is_whole && task.kind().is_owned() {
                    self.cache.reinsert(job_row, seq, task);
                }
                return Err(StoreError::Rejected(rejected).into());
            }
        };
        let (before, shown) = (task.kind(), self.shown(&task));
        if before == StateKind::Enqueued {
            self.created_since_claim = 0;
        }
        let changed = ChangedColumns {
            modified: transition.modified.is_some(),
            checkpoint: transition.checkpoint.is_some(),
            result: transition.result.is_some() || transition.fresh,
            owed: task.owed.is_some() || transition.owed.is_some(),
            family: transition.family.is_some(),
        };
        task.advance(transition);
        let admitted = job.admit_stored(&mut task);
        let changed = ChangedColumns {
            family: changed.family || admitted,
            ..changed
        };
        self.write_task(seq, &job, &task, changed)?;
        self.moved(shown.as_ref(), &task);
        if changed.owed && task.owed.is_none() {
            self.prune.settled(seq);
        }
        self.counts.moved(job_row, before, task.kind());
        if task.kind().is_in_flight() {
            self.places.settle(&job.name, &task.id);
        }
        self.cache_whole(job_row, seq, &task, is_whole);
        Ok(Applied {
            task,
            repeated: false,
        })
    }

    /// The task of a command, and whether all of it was read. A trigger needs no payload: large ones of due tasks would be read
    /// for nothing. A blob that was not read is not written either, because its column is NULL.
    fn read(
        &self,
        job: &JobName,
        job_row: i64,
        command: &Command,
    ) -> rusqlite::Result<Option<(StoredTask, bool)>> {
        let id = &command.id;
        if matches!(command.event, Event::Trigger(_)) {
            return row::find_without_payload(&self.db, job, job_row, id);
        }
        Ok(row::find(&self.db, job, job_row, id)?.map(|stored| (stored, true)))
    }

    /// Caches a task, but not without its blobs.
    fn cache_whole(&mut self, job_row: i64, seq: i64, task: &Task, is_whole: bool) {
        if is_whole {
            self.cache.insert(job_row, seq, task);
        }
    }

    fn write_task(
        &self,
        seq: i64,
        job: &Job,
        task: &Task,
        changed: ChangedColumns,
    ) -> rusqlite::Result<()> {
        row::update(&mut self.db.prepare_cached(row::UPDATE)?, seq, task)?;
        if job.fair_share.is_some() {
            row::update_lane(&self.db, seq, job, task)?;
        }
        if changed.modified {
            row::update_modified(&self.db, seq, task)?;
        }
        if changed.family {
            row::update_options(&self.db, seq, task)?;
        }
        if changed.owed {
            row::update_owed(&self.db, seq, task)?;
        }
        if changed.checkpoint {
            self.write_blob(seq, BlobKind::Checkpoint, task.checkpoint.as_ref())?;
        }
        if changed.result {
            self.write_blob(seq, BlobKind::Result, task.result.as_ref())?;
        }
        Ok(())
    }

    /// Stores a changed checkpoint or result as a blob when it is large. Deletes the old blob otherwise, so that the
    /// bytes are never stored both in the row and as a blob.
    fn write_blob(
        &self,
        seq: i64,
        kind: BlobKind,
        bytes: Option<&bytes::Bytes>,
    ) -> rusqlite::Result<()> {
        let is_large = bytes.is_some_and(|bytes| bytes.len() > row::INLINE_BYTES_MAX);
        match kind {
            _ if is_large => row::put_blob(&self.db, seq, kind, bytes),
            // A result never replaces another one: a redrive deletes the old one first. So there is no blob to delete.
            BlobKind::Result if bytes.is_some() => Ok(()),
            _ => row::delete_blob(&self.db, seq, kind),
        }
    }
}

/// Columns beyond the state that a transition changed.
#[derive(Clone, Copy)]
struct ChangedColumns {
    modified: bool,
    checkpoint: bool,
    result: bool,
    owed: bool,
    family: bool,
}
