//! New tasks.

use dueline_domain::{NewTask, Task, Timestamp};
use dueline_ports::{Create, Created, StoreError};
use rusqlite::OptionalExtension as _;

use super::{ItemError, Writer, many};
use crate::row;

/// After so many submits in a row nobody seems to work here, and keeping tasks at hand for a claim is a waste.
const CREATED_WITHOUT_CLAIM_MAX: u32 = 4_096;

impl Writer {
    pub(super) fn create(
        &mut self,
        now: Timestamp,
        new: Vec<Create>,
    ) -> (Vec<Result<Created, StoreError>>, Option<rusqlite::Error>) {
        many(new, |create| self.create_one(now, create))
    }

    fn create_one(&mut self, now: Timestamp, create: Create) -> Result<Created, ItemError> {
        let Create {
            task: submit,
            token,
            write,
            hand_on,
            claim_for,
        } = create;
        let Some(entry) = self.jobs.get(&submit.job) else {
            return Err(StoreError::no_job(&submit.job).into());
        };
        let (job_row, job) = (entry.row, entry.job.clone());
        let hand_on = hand_on && job.hands_on_at_once();
        let run_at = submit.run_at;
        let mut task = Box::new(submit.into_task(&job.policy, now, token, write, hand_on));
        if let Some(worker) = claim_for {
            task.claim_at_birth(&job.policy, worker);
        }
        let mut statement = self.db.prepare_cached(row::INSERT)?;
        if !row::insert(&mut statement, job_row, &task)? {
            drop(statement);
            let existing = self.existing(job_row, &task)?;
            if !existing.is_made_by(&submit_of(*task, run_at)) {
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
            row::put_apart(&self.db, seq, row::Part::Payload, Some(&task.payload))?;
        }
        self.counts.add(job_row, task.kind(), 1);
        self.created_since_claim = self.created_since_claim.saturating_add(1);
        if self.created_since_claim < CREATED_WITHOUT_CLAIM_MAX {
            self.cache.keep(job_row, self.db.last_insert_rowid(), &task);
        }
        Ok(Created {
            task,
            existed: false,
        })
    }

    /// The task that stands in the way of a new one: it has its id, or its key.
    fn existing(&self, job_row: i64, task: &Task) -> Result<Task, ItemError> {
        if let Some(stored) = row::find(&self.db, &task.job, job_row, &task.id)? {
            return Ok(stored.task);
        }
        let key = task.extras.as_ref().and_then(|extras| extras.key.clone());
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
        // The insert said that something is in the way, within this very transaction.
        found
            .map(|stored| stored.task)
            .ok_or_else(|| StoreError::Corrupt("a unique index names no task".into()).into())
    }
}

/// The submit that a task was just made of.
fn submit_of(task: Task, run_at: Option<Timestamp>) -> NewTask {
    NewTask {
        id: task.id,
        id_is_given: true,
        job: task.job,
        run_at,
        priority: task.priority,
        weight: task.weight,
        payload: task.payload,
        extras: task.extras,
    }
}
