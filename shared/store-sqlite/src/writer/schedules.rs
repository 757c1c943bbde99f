//! Schedules.

use dueline_domain::{JobName, ScheduleName, Timestamp, WriteId};
use dueline_ports::{PutSchedule, StoreError};
use rusqlite::OptionalExtension as _;

use super::{ItemError, Writer};

impl Writer {
    /// Stores a schedule if its latest write is still the one that was seen.
    pub(crate) fn put_schedule(&mut self, put: &PutSchedule) -> Result<bool, ItemError> {
        let PutSchedule { schedule, seen } = put;
        let row = self.job_row(&schedule.job)?;
        let name = schedule.name.as_str();
        let stored: Option<i64> = self
            .db
            .prepare_cached("SELECT write_id FROM schedule WHERE job = ?1 AND name = ?2")?
            .query_row((row, name), |row| row.get(0))
            .optional()?;
        let write = schedule.write.to_stored();
        if stored == Some(write) {
            return Ok(true);
        }
        if stored != seen.map(WriteId::to_stored) {
            return Ok(false);
        }
        self.db
            .prepare_cached(
                "INSERT INTO schedule (job, name, wake_at, write_id, record, payload) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (job, name) DO UPDATE SET \
                 wake_at = excluded.wake_at, write_id = excluded.write_id, record = excluded.record, \
                 payload = excluded.payload",
            )?
            .execute((
                row,
                name,
                schedule.wake_at().map(Timestamp::millis),
                write,
                dueline_records::schedule_to_json(schedule),
                &*schedule.spec.template.payload,
            ))?;
        Ok(true)
    }

    pub(crate) fn delete_schedule(
        &mut self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<bool, ItemError> {
        let Ok(row) = self.job_row(job) else {
            return Ok(false);
        };
        let deleted = self
            .db
            .prepare_cached("DELETE FROM schedule WHERE job = ?1 AND name = ?2")?
            .execute((row, name.as_str()))?;
        Ok(deleted > 0)
    }

    pub(super) fn has_schedules(&self, job_row: i64) -> rusqlite::Result<bool> {
        self.db
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM schedule WHERE job = ?1)")?
            .query_row([job_row], |row| row.get(0))
    }

    pub(super) fn job_row(&self, job: &JobName) -> Result<i64, ItemError> {
        let entry = self.jobs.get(job);
        entry
            .map(|entry| entry.row)
            .ok_or_else(|| StoreError::no_job(job).into())
    }
}
