//! Events: read, decide, write, as one step because nobody else writes.

use dueline_domain::{StateKind, Task, Timestamp};
use dueline_ports::{Applied, Command, StoreError};

use super::{ItemError, Writer, many};
use crate::row::{self, Part};

impl Writer {
    pub(super) fn apply(
        &mut self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> (Vec<Result<Applied, StoreError>>, Option<rusqlite::Error>) {
        many(commands, |command| self.apply_one(now, command))
    }

    fn apply_one(&mut self, now: Timestamp, command: Command) -> Result<Applied, ItemError> {
        let Some(entry) = self.jobs.get(&command.job) else {
            return Err(StoreError::no_task(&command.id).into());
        };
        let (job_row, job) = (entry.row, entry.job.clone());
        let (seq, mut task) = match self.cache.take(job_row, &command.id) {
            Some(cached) => cached,
            None => match row::find(&self.db, &job.name, job_row, &command.id)? {
                Some(stored) => (stored.seq, Box::new(stored.task)),
                None => return Err(StoreError::no_task(&command.id).into()),
            },
        };
        if task.write == command.write {
            self.cache.keep(job_row, seq, &task);
            return Ok(Applied {
                task,
                repeated: true,
            });
        }
        let decided = dueline_domain::apply(&task, &job.policy, &command.event, command.write, now);
        let transition = match decided {
            Ok(transition) => transition,
            Err(rejected) => {
                if task.kind().is_owned() {
                    self.cache.put_back(job_row, seq, task);
                }
                return Err(StoreError::Rejected(rejected).into());
            }
        };
        let before = task.kind();
        if before == StateKind::Enqueued {
            self.created_since_claim = 0;
        }
        let touched = Touched {
            modified: transition.modified.is_some(),
            checkpoint: transition.checkpoint.is_some(),
            result: transition.result.is_some() || transition.fresh,
        };
        task.advance(transition);
        self.write_back(seq, &task, touched)?;
        self.counts.moved(job_row, before, task.kind());
        self.cache.keep(job_row, seq, &task);
        Ok(Applied {
            task,
            repeated: false,
        })
    }

    fn write_back(&self, seq: i64, task: &Task, touched: Touched) -> rusqlite::Result<()> {
        row::update(&mut self.db.prepare_cached(row::UPDATE)?, seq, task)?;
        if touched.modified {
            row::update_modified(&self.db, seq, task)?;
        }
        if touched.checkpoint {
            self.part(seq, Part::Checkpoint, task.checkpoint.as_ref())?;
        }
        if touched.result {
            self.part(seq, Part::Result, task.result.as_ref())?;
        }
        Ok(())
    }

    /// Stores a part that has just been set: apart when it is large, and never in both places.
    fn part(&self, seq: i64, part: Part, bytes: Option<&bytes::Bytes>) -> rusqlite::Result<()> {
        let is_large = bytes.is_some_and(|bytes| bytes.len() > row::INLINE_BYTES_MAX);
        match part {
            _ if is_large => row::put_apart(&self.db, seq, part, bytes),
            // A small checkpoint may follow a large one; a result is set once in a life, unless there was another.
            Part::Result if bytes.is_some() => Ok(()),
            _ => row::drop_apart(&self.db, seq, part),
        }
    }
}

/// Parts that a transition set.
#[derive(Clone, Copy)]
struct Touched {
    modified: bool,
    checkpoint: bool,
    result: bool,
}
