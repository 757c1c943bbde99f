//! Job definitions.

use std::{collections::BTreeSet, sync::Arc};

use dueline_domain::{Job, JobName, Timestamp};
use dueline_ports::{PutJob, StoreError};
use rusqlite::Connection;

use super::{ItemError, Writer};
use crate::jobs::JobTable;

/// All readable definitions, and the row numbers of all jobs. An unreadable definition is logged and left out, so that
/// it does not hide the others.
pub(super) fn load(db: &Connection) -> rusqlite::Result<(JobTable, BTreeSet<i64>)> {
    let (mut jobs, mut all) = (JobTable::default(), BTreeSet::new());
    let mut statement = db.prepare("SELECT id, name, definition FROM job")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(1)?;
        let definition: String = row.get(2)?;
        all.insert(row.get(0)?);
        match dueline_records::job_from_json(&name, &definition) {
            Ok(job) => jobs.insert(row.get(0)?, Arc::new(job)),
            Err(error) => tracing::error!(job.name = name, %error, "unreadable job definition"),
        }
    }
    Ok((jobs, all))
}

impl Writer {
    pub(crate) fn put_job(&mut self, put: PutJob) -> Result<Arc<Job>, ItemError> {
        let mut job = put.job;
        match self.jobs.get(&job.name) {
            Some(entry) if put.if_absent => Ok(entry.job.clone()),
            Some(entry) => {
                job.keep(&entry.job);
                job.changed_at = job.changed_at.max(entry.job.changed_at);
                self.replace(entry.row, job)
            }
            None => {
                // A job whose definition is unreadable keeps its row number, so its tasks belong to the new definition.
                let row: i64 = self
                    .db
                    .prepare_cached(
                        "INSERT INTO job (name, definition) VALUES (?1, ?2) \
                         ON CONFLICT (name) DO UPDATE SET definition = excluded.definition RETURNING id",
                    )?
                    .query_row((job.name.as_str(), dueline_records::job_to_json(&job)), |row| {
                        row.get(0)
                    })?;
                self.job_rows.insert(row);
                let job = Arc::new(job);
                self.jobs.insert(row, job.clone());
                self.jobs_changed = true;
                Ok(job)
            }
        }
    }

    pub(crate) fn pause_job(
        &mut self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, ItemError> {
        let Some(entry) = self.jobs.get(name) else {
            return Err(StoreError::no_job(name).into());
        };
        let changed_at = entry.job.changed_at.max(now);
        let job = Job {
            paused,
            changed_at,
            ..Job::clone(&entry.job)
        };
        self.replace(entry.row, job)
    }

    fn replace(&mut self, row: i64, job: Job) -> Result<Arc<Job>, ItemError> {
        let stored: String = self
            .db
            .prepare_cached("SELECT definition FROM job WHERE id = ?1")?
            .query_row([row], |row| row.get(0))?;
        let definition = dueline_records::job_to_json_over(&job, &stored);
        self.db
            .prepare_cached("UPDATE job SET definition = ?2 WHERE id = ?1")?
            .execute((row, definition))?;
        let job = Arc::new(job);
        self.jobs.insert(row, job.clone());
        self.jobs_changed = true;
        Ok(job)
    }

    /// Deletes the definition. Its finished tasks cannot be read any more; the pruner deletes them later.
    pub(crate) fn delete_job(&mut self, name: &JobName) -> Result<(), ItemError> {
        let Some(entry) = self.jobs.get(name) else {
            return Err(StoreError::no_job(name).into());
        };
        let row = entry.row;
        if self.has_schedules(row)? {
            return Err(StoreError::HasSchedules(name.clone()).into());
        }
        let owing: i64 = self
            .db
            .prepare_cached(
                "SELECT count(*) FROM task INDEXED BY task_owed WHERE job = ?1 AND owed_at IS NOT NULL",
            )?
            .query_row([row], |row| row.get(0))?;
        let unfinished =
            self.counts.sum(row, |kind| !kind.is_final()) + u64::try_from(owing).unwrap_or(0);
        if unfinished > 0 {
            let job = name.clone();
            return Err(StoreError::InUse { job, unfinished }.into());
        }
        self.db
            .prepare_cached("DELETE FROM job WHERE id = ?1")?
            .execute([row])?;
        self.counts.remove_job(&self.db, row)?;
        self.jobs.remove(name);
        self.job_rows.remove(&row);
        self.feed.forget(name);
        self.jobs_changed = true;
        Ok(())
    }
}
