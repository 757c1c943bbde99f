//! `create`: inserts new tasks.

use dueline_domain::{Due, NewTask, Task, Timestamp};
use dueline_ports::{Create, Created, StoreError};
use rusqlite::OptionalExtension as _;

use super::{ItemError, Writer};
use crate::row;

/// New tasks in a row without a claim after which new tasks are not cached any more: no worker seems to be there to
/// claim them.
const CREATED_WITHOUT_CLAIM_MAX: u32 = 4_096;

impl Writer {
    pub(crate) fn create(&mut self, now: Timestamp, create: Create) -> Result<Created, ItemError> {
        let Create {
            task: submit,
            token,
            write,
            may_enqueue,
            claim_for,
        } = create;
        let Some(entry) = self.jobs.get(&submit.job) else {
            return Err(StoreError::no_job(&submit.job).into());
        };
        let (job_row, job) = (entry.row, entry.job.clone());
        let may_enqueue = may_enqueue && job.enqueues_at_once();
        let due = submit.due;
        let mut task = Box::new(submit.into_task(&job.policy, now, token, write, may_enqueue));
        if let Some(worker) = claim_for {
            task.claim_on_create(&job.policy, worker);
        }
        let mut statement = self.db.prepare_cached(row::INSERT)?;
        if !row::insert(&mut statement, job_row, &task)? {
            drop(statement);
            let existing = self.existing(job_row, &task)?;
            if !existing.matches_submit(&submit_of(*task, due)) {
                return Err(StoreError::Exists(existing.id).into());
            }
            return Ok(Created {
                task: Box::new(existing),
                existed: true,
            });
        }
        drop(statement);
        if task.payload.len() > row::INLINE_BYTES_MAX {
            let seq = self.db.last_insert_rowid();
            row::put_blob(&self.db, seq, row::BlobKind::Payload, Some(&task.payload))?;
        }
        self.counts.add(job_row, task.kind(), 1);
        self.created_since_claim = self.created_since_claim.saturating_add(1);
        if self.created_since_claim < CREATED_WITHOUT_CLAIM_MAX {
            self.cache
                .insert(job_row, self.db.last_insert_rowid(), &task);
        }
        Ok(Created {
            task,
            existed: false,
        })
    }

    /// The existing task that has the id or the idempotency key of a new one.
    fn existing(&self, job_row: i64, task: &Task) -> Result<Task, ItemError> {
        if let Some(stored) = row::find(&self.db, &task.job, job_row, &task.id)? {
            return Ok(stored.task);
        }
        let key = task
            .options
            .as_ref()
            .and_then(|options| options.key.clone());
        let id: Option<[u8; 16]> = self
            .db
            .prepare_cached("SELECT id FROM task WHERE job = ?1 AND key = ?2")?
            .query_row((job_row, key.as_deref()), |row| row.get(0))
            .optional()?;
        let id = id.map(dueline_domain::TaskId::from_bytes);
        let found = match id {
            Some(id) => row::find(&self.db, &task.job, job_row, &id)?,
            None => None,
        };
        // The insert failed on a unique index within this transaction, so the task exists.
        found
            .map(|stored| stored.task)
            .ok_or_else(|| StoreError::Corrupt("a unique index names no task".into()).into())
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
