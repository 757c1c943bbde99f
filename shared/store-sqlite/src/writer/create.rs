//! `create`: inserts new tasks.

use dueline_domain::{Due, Job, Meeting, NewTask, Task, Timestamp};
use dueline_ports::{Command, Create, Created, StoreError};
use rusqlite::OptionalExtension as _;

use super::{ItemError, Writer};
use crate::row::{self, StoredTask};

/// New tasks in a row without a claim after which new tasks are not cached any more: no worker seems to be there to
/// claim them.
const CREATED_WITHOUT_CLAIM_MAX: u32 = 4_096;

impl Writer {
    pub(crate) fn create(&mut self, now: Timestamp, create: Create) -> Result<Created, ItemError> {
        let Create {
            task: mut submit,
            token,
            write,
            may_enqueue,
            claim_for,
        } = create;
        let Some(entry) = self.jobs.get(&submit.job) else {
            return Err(StoreError::no_job(&submit.job).into());
        };
        let (job_row, job) = (entry.row, entry.job.clone());
        job.admit(&mut submit);
        let may_enqueue = may_enqueue && job.enqueues_at_once();
        let due = submit.due;
        let mut task = Box::new(submit.into_task(&job.policy, now, token, write, may_enqueue));
        if let Some(worker) = claim_for {
            task.claim_on_create(&job.policy, worker);
        }
        if !self.insert(job_row, &job, &task)? {
            let existing = self.existing(job_row, &task)?;
            let submit = submit_of(Task::clone(&task), due);
            match existing.task.meet(&submit, now) {
                Meeting::Free => self.take_key(job_row, &job, existing.seq, &task)?,
                Meeting::Return => return Ok(found(existing.task, false)),
                Meeting::Replace => {
                    let command = Command {
                        job: submit.job.clone(),
                        id: existing.task.id,
                        event: submit.replacement(&existing.task, now, token, may_enqueue),
                        write,
                    };
                    let applied = self.apply(now, command)?;
                    return Ok(found(*applied.task, true));
                }
                Meeting::Differs => return Err(StoreError::Exists(existing.task.id).into()),
                Meeting::Held => {
                    let (holder, state) = (existing.task.id, existing.task.kind());
                    return Err(StoreError::KeyHeld { holder, state }.into());
                }
            }
        }
        if task.payload.len() > row::INLINE_BYTES_MAX {
            let seq = self.db.last_insert_rowid();
            row::put_blob(&self.db, seq, row::BlobKind::Payload, Some(&task.payload))?;
        }
        self.posted(&task);
        self.counts.add(job_row, task.kind(), 1);
        self.created_since_claim = self.created_since_claim.saturating_add(1);
        if self.created_since_claim < CREATED_WITHOUT_CLAIM_MAX {
            self.cache
                .insert(job_row, self.db.last_insert_rowid(), &task);
        }
        Ok(Created {
            task,
            existed: false,
            replaced: false,
        })
    }

    /// Inserts a row; answers whether neither its id nor its key is taken.
    fn insert(&self, job_row: i64, job: &Job, task: &Task) -> rusqlite::Result<bool> {
        let inserted = row::insert(&mut self.db.prepare_cached(row::INSERT)?, job_row, task)?;
        if inserted && job.fair_share.is_some() {
            row::update_lane(&self.db, self.db.last_insert_rowid(), job, task)?;
        }
        Ok(inserted)
    }

    /// Inserts a task that takes its key over from the task of a row.
    fn take_key(&self, job_row: i64, job: &Job, from: i64, task: &Task) -> Result<(), ItemError> {
        self.db
            .prepare_cached("UPDATE task SET key_lost = 1 WHERE seq = ?1")?
            .execute([from])?;
        match self.insert(job_row, job, task)? {
            true => Ok(()),
            false => Err(StoreError::Corrupt("a unique index names two tasks".into()).into()),
        }
    }

    /// The existing task that has the id or the idempotency key of a new one.
    fn existing(&self, job_row: i64, task: &Task) -> Result<StoredTask, ItemError> {
        if let Some(stored) = row::find(&self.db, &task.job, job_row, &task.id)? {
            return Ok(stored);
        }
        let key = task
            .options
            .as_ref()
            .and_then(|options| options.key.clone());
        let id: Option<[u8; 16]> = self
            .db
            .prepare_cached("SELECT id FROM task WHERE job = ?1 AND key = ?2 AND key_lost IS NULL")?
            .query_row((job_row, key.as_deref()), |row| row.get(0))
            .optional()?;
        let id = id.map(dueline_domain::TaskId::from_bytes);
        let found = match id {
            Some(id) => row::find(&self.db, &task.job, job_row, &id)?,
            None => None,
        };
        // The insert failed on a unique index within this transaction, so the task exists.
        found.ok_or_else(|| StoreError::Corrupt("a unique index names no task".into()).into())
    }
}

fn found(task: Task, replaced: bool) -> Created {
    Created {
        task: Box::new(task),
        existed: true,
        replaced,
    }
}

/// The submit from which a task was just made.
fn submit_of(task: Task, due: Due) -> NewTask {
    NewTask {
        id: task.id,
        id_is_given: true,
        job: task.job,
        due,
        priority: task.priority,
        weight: task.weight,
        payload: task.payload,
        options: task.options,
    }
}
