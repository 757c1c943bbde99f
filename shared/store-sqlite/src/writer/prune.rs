//! `prune`: deletes finished tasks past their job's retention that owe nothing, and tasks of deleted jobs.
//!
//! An index on the end of a task would cost a write for every task. Instead the pruner remembers for each range of rows
//! the earliest time at which one of its tasks may be due for deletion, and reads a range only when that time has come.
//! What it remembers is lost with the process: the first round after a start reads every range once.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use dueline_domain::{StateKind, Timestamp};
use dueline_ports::Pruned;
use rusqlite::Connection;

use super::{ItemError, Writer};

/// Rows in a range: 2 to the power of this.
const RANGE_BITS: u32 = 12;

/// Most rows scanned per call, as a multiple of the rows that may be deleted. A range that has been begun is read to its
/// end.
const ROWS_SCANNED_PER_DELETED: usize = 8;

/// When which rows have to be read.
#[derive(Default)]
pub(super) struct PruneTimes {
    /// For each range the earliest time at which one of its tasks may be due. A range without such a time is missing.
    ranges: BTreeMap<i64, Timestamp>,
    /// Where the next call continues. Ranges that are due again at once must not keep it from reaching the others.
    from: i64,
    /// The retentions by which the times were calculated, by the row number of the job.
    retention: HashMap<i64, Option<Duration>>,
    /// The latest call, and the last row then; `None` until the ranges are known. Later rows are of tasks that end later.
    seen: Option<(Timestamp, i64)>,
    /// Ranges whose rows were read or deleted in a transaction that is not committed yet.
    uncommitted: Vec<i64>,
    /// Rows read by the latest call.
    rows_scanned: usize,
}

impl PruneTimes {
    pub(super) fn committed(&mut self) {
        self.uncommitted.clear();
    }

    /// A task owes nothing any more, so it may be due.
    pub(super) fn settled(&mut self, row: i64) {
        self.ranges.insert(range_of(row), at_once());
    }

    /// The transaction was rolled back: its deletions have not happened, and the last row may be an earlier one.
    pub(super) fn rolled_back(&mut self, db: &Connection) -> rusqlite::Result<()> {
        for range in self.uncommitted.drain(..) {
            self.ranges.insert(range, at_once());
        }
        if let Some((_, last_row)) = &mut self.seen {
            *last_row = (*last_row).min(row_limits(db)?.map_or(0, |(_, last)| last));
        }
        Ok(())
    }

    /// Enters the ranges of rows that are new since the latest call. Starts anew when what is known may be wrong: a
    /// retention has changed, a job was deleted, or the clock was set back.
    fn update(
        &mut self,
        now: Timestamp,
        limits: Option<(i64, i64)>,
        retention: HashMap<i64, Option<Duration>>,
    ) {
        let (first, last) = limits.unwrap_or((0, -1));
        let known_jobs_max = self.retention.keys().max().copied().unwrap_or(-1);
        let is_changed = self
            .retention
            .iter()
            .any(|(job, known)| retention.get(job) != Some(known))
            // A definition that was unreadable has been replaced. Other new jobs have later row numbers.
            || retention
                .keys()
                .any(|job| *job <= known_jobs_max && !self.retention.contains_key(job));
        match self.seen {
            Some((then, last_row)) if then <= now && !is_changed => {
                let shortest = retention.values().flatten().min();
                if let (true, Some(shortest)) = (last > last_row, shortest) {
                    let due = then.after(*shortest);
                    for range in range_of(last_row + 1)..=range_of(last) {
                        let at = self.ranges.entry(range).or_insert(due);
                        *at = due.min(*at);
                    }
                }
            }
            _ => {
                let all = range_of(first)..=range_of(last);
                self.ranges = all.map(|range| (range, at_once())).collect();
                self.from = 0;
            }
        }
        self.retention = retention;
        self.seen = Some((now, last));
    }

    /// The next range to read, from where the latest call ended.
    fn next_due(&self, now: Timestamp) -> Option<i64> {
        let mut later = self.ranges.range(self.from..);
        later.find(|(_, at)| **at <= now).map(|(range, _)| *range)
    }
}

/// A time that has passed by any clock.
fn at_once() -> Timestamp {
    Timestamp::clamped(i64::MIN)
}

const fn range_of(row: i64) -> i64 {
    row >> RANGE_BITS
}

/// The first and the last row of the table.
fn row_limits(db: &Connection) -> rusqlite::Result<Option<(i64, i64)>> {
    let mut statement =
        db.prepare_cached("SELECT (SELECT min(seq) FROM task), (SELECT max(seq) FROM task)")?;
    statement.query_row([], |row| {
        let limits: (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
        Ok(limits.0.zip(limits.1))
    })
}

/// A task to delete: its row, the row of its job, its state, and its id.
type Expired = (i64, i64, Option<StateKind>, [u8; 16]);

impl Writer {
    pub(crate) fn prune(&mut self, now: Timestamp, limit: usize) -> Result<Pruned, ItemError> {
        let jobs = self.jobs.iter();
        let retention = jobs
            .map(|entry| (entry.row, entry.job.policy.retention))
            .collect();
        self.prune.update(now, row_limits(&self.db)?, retention);
        self.prune.rows_scanned = 0;
        let mut expired = Vec::new();
        let rows_scanned_max = limit.saturating_mul(ROWS_SCANNED_PER_DELETED);
        let more = loop {
            let Some(range) = self.prune.next_due(now) else {
                self.prune.from = 0;
                break false;
            };
            self.prune.from = range;
            if expired.len() >= limit || self.prune.rows_scanned >= rows_scanned_max {
                break true;
            }
            if self.prune_range(range, now, limit, &mut expired)? {
                self.prune.from = range + 1;
            }
        };
        for (seq, job, kind, id) in &expired {
            self.db
                .prepare_cached("DELETE FROM task WHERE seq = ?1")?
                .execute([seq])?;
            self.db
                .prepare_cached("DELETE FROM body WHERE seq = ?1")?
                .execute([seq])?;
            self.db
                .prepare_cached("DELETE FROM edge WHERE job = ?1 AND task = ?2")?
                .execute((job, id))?;
            self.removed(*job, *id, now);
            if let (Some(kind), true) = (kind, self.prune.retention.contains_key(job)) {
                self.counts.add(*job, *kind, -1);
            }
        }
        if !expired.is_empty() {
            // New tasks may get the row numbers of deleted ones at the end of the table.
            let last_row = row_limits(&self.db)?.map_or(0, |(_, last)| last);
            self.prune.seen = Some((now, last_row));
        }
        Ok(Pruned {
            deleted: expired.len(),
            more,
        })
    }

    /// Reads a range and enters when it must be read next. Returns `false` if the limit of tasks to delete was reached
    /// before its end.
    fn prune_range(
        &mut self,
        range: i64,
        now: Timestamp,
        limit: usize,
        expired: &mut Vec<Expired>,
    ) -> rusqlite::Result<bool> {
        self.prune.uncommitted.push(range);
        let mut next: Option<Timestamp> = None;
        let mut statement = self.db.prepare_cached(
            "SELECT seq, job, state, finished_at, owed_at, id FROM task WHERE seq >= ?1 AND seq < ?2 ORDER BY seq",
        )?;
        let mut rows = statement.query((range << RANGE_BITS, (range + 1) << RANGE_BITS))?;
        while let Some(row) = rows.next()? {
            if expired.len() >= limit {
                return Ok(false);
            }
            self.prune.rows_scanned += 1;
            let (seq, job): (i64, i64) = (row.get(0)?, row.get(1)?);
            let kind = StateKind::from_code(row.get(2)?);
            let finished_at: Option<i64> = row.get(3)?;
            let is_final = kind.is_some_and(StateKind::is_final);
            let owes = row.get_ref(4)? != rusqlite::types::ValueRef::Null;
            let due = match self.prune.retention.get(&job) {
                // Its range is due again once it owes nothing.
                _ if owes => None,
                // The job was deleted. A job with an unreadable definition keeps its tasks.
                None => (is_final && !self.job_rows.contains(&job)).then_some(now),
                // A task that has not finished finishes later than now.
                Some(retention) => {
                    let from = finished_at.map_or(now, Timestamp::clamped);
                    retention.map(|retention| from.after(retention))
                }
            };
            match due {
                Some(due) if due <= now && finished_at.is_some() => {
                    expired.push((seq, job, kind, row.get(5)?));
                }
                Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
                None => {}
            }
        }
        match next {
            Some(next) => self.prune.ranges.insert(range, next),
            None => self.prune.ranges.remove(&range),
        };
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dueline_domain::{Handler, Job, JobName, Policy, Quota};
    use dueline_ports::PutJob;

    use super::*;
    use crate::{SqliteOptions, open};

    const TASKS: i64 = 20_000;

    /// A writer on a file with two jobs: finished tasks of the first are kept for 100 s, those of the second for ever.
    fn writer(folder: &std::path::Path) -> Writer {
        let options = SqliteOptions::at(folder.join("t.db"));
        let db = open::open_writer(&options).unwrap();
        let mut writer = Writer::load(db, &options.path, Arc::default(), Arc::default()).unwrap();
        put(&mut writer, "kept-100-s", Some(Duration::from_secs(100)));
        put(&mut writer, "kept", None);
        writer
    }

    fn put(writer: &mut Writer, name: &str, retention: Option<Duration>) {
        let job = Job {
            name: JobName::parse(name).unwrap(),
            info: "".into(),
            handler: Handler::worker(),
            policy: Policy {
                retention,
                ..Policy::default()
            },
            quota: Quota::default(),
            fair_share: None,
            paused: false,
            created_by: "test".into(),
            created_at: at(0),
            changed_at: at(0),
        };
        let put = PutJob {
            job,
            if_absent: false,
        };
        assert!(writer.put_job(put).is_ok());
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::clamped(seconds * 1_000)
    }

    /// Adds `count` tasks; those of state 6 have finished at `seconds`.
    fn add(writer: &Writer, job: i64, count: i64, kind: StateKind, seconds: i64) {
        let finished = kind.is_final().then_some(seconds * 1_000);
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?4)
             INSERT INTO task (id, job, state, priority, weight, run_at, write_id, tries, losses, cancel_requested,
                 created_at, changed_at, finished_at)
             SELECT randomblob(16), ?1, ?2, 0, 1, 0, 1, 1, 0, 0, 0, 0, ?3 FROM n";
        let values = (job, kind.code(), finished, count);
        writer.db.execute(sql, values).unwrap();
    }

    /// One round, as the service does it: how many tasks were deleted, and how many rows were read.
    fn round(writer: &mut Writer, seconds: i64) -> (usize, usize) {
        let mut total = (0, 0);
        for _ in 0..100 {
            let Ok(pruned) = writer.prune(at(seconds), 1_000) else {
                panic!("failed");
            };
            writer.prune.committed();
            total.0 += pruned.deleted;
            total.1 += writer.prune.rows_scanned;
            if !pruned.more {
                break;
            }
        }
        total
    }

    #[test]
    fn kept_tasks_are_read_once_and_then_only_when_one_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        add(&writer, 2, TASKS, StateKind::Succeeded, 1);
        add(&writer, 1, 10, StateKind::Succeeded, 5);
        let all = usize::try_from(TASKS).unwrap() + 10;
        assert_eq!(
            round(&mut writer, 10),
            (0, all),
            "the first round reads all"
        );
        for seconds in [10, 15, 104] {
            assert_eq!(round(&mut writer, seconds), (0, 0), "at {seconds}");
        }
        let (deleted, rows) = round(&mut writer, 105);
        assert_eq!(deleted, 10);
        assert!(rows <= 1 << RANGE_BITS, "{rows} rows read");
        assert_eq!(round(&mut writer, 1_000), (0, 0));
    }

    #[test]
    fn new_tasks_are_read_no_sooner_than_one_can_be_due_and_then_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        add(&writer, 2, TASKS, StateKind::Succeeded, 1);
        round(&mut writer, 10);
        add(&writer, 1, 5, StateKind::Enqueued, 0);
        add(&writer, 1, 7, StateKind::Succeeded, 11);
        assert_eq!(round(&mut writer, 15), (0, 0));
        assert_eq!(round(&mut writer, 109), (0, 0));
        let (deleted, rows) = round(&mut writer, 111);
        assert_eq!(deleted, 7);
        assert!(rows <= 1 << RANGE_BITS, "{rows} rows read");
        // The last rows were deleted, so these get their numbers again.
        add(&writer, 1, 3, StateKind::Succeeded, 112);
        assert_eq!(round(&mut writer, 120).0, 0);
        let sql = "UPDATE task SET state = 6, finished_at = 130000 WHERE state = 2";
        assert_eq!(writer.db.execute(sql, []).unwrap(), 5);
        assert_eq!(round(&mut writer, 212).0, 3);
        assert_eq!(round(&mut writer, 229).0, 0);
        assert_eq!(round(&mut writer, 230).0, 5);
    }

    #[test]
    fn a_shorter_retention_a_deleted_job_or_a_clock_set_back_starts_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        add(&writer, 1, 10, StateKind::Succeeded, 5);
        add(&writer, 2, 10, StateKind::Succeeded, 5);
        assert_eq!(round(&mut writer, 10), (0, 20));
        put(&mut writer, "kept-100-s", Some(Duration::from_secs(3)));
        assert_eq!(round(&mut writer, 10), (10, 20));
        put(&mut writer, "another", Some(Duration::from_secs(3)));
        assert_eq!(round(&mut writer, 10), (0, 0), "a new job changes nothing");
        assert_eq!(round(&mut writer, 9), (0, 10), "the clock was set back");
        let name = JobName::parse("kept").unwrap();
        assert!(writer.delete_job(&name).is_ok());
        assert_eq!(round(&mut writer, 11), (10, 10));
    }

    #[test]
    fn deletions_that_are_rolled_back_are_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        add(&writer, 1, 10, StateKind::Succeeded, 5);
        round(&mut writer, 10);
        writer.db.execute_batch("BEGIN").unwrap();
        let pruned = writer.prune(at(200), 1_000);
        assert!(pruned.is_ok_and(|pruned| pruned.deleted == 10));
        writer.db.execute_batch("ROLLBACK").unwrap();
        writer.reload().unwrap();
        assert_eq!(round(&mut writer, 200).0, 10);
    }

    #[test]
    fn ranges_that_are_due_again_at_once_do_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        put(&mut writer, "kept-100-s", Some(Duration::ZERO));
        add(&writer, 1, TASKS, StateKind::Enqueued, 0);
        add(&writer, 1, 10, StateKind::Succeeded, 5);
        let mut deleted = 0;
        for _ in 0..10 {
            let pruned = writer.prune(at(10), 100).ok();
            writer.prune.committed();
            deleted += pruned.map_or(0, |pruned| pruned.deleted);
        }
        assert_eq!(deleted, 10);
    }
}
