//! Due tasks, read job by job, so that the backlog of one job cannot hide the due tasks of another, and by priority, so
//! that a backlog of low ones cannot hide those of high priority. Enqueued tasks, whose messages are late, and tasks that
//! wait for others come last.

use dueline_domain::{StateKind, TaskId, Timestamp};
use dueline_ports::{DuePage, DueQuery, DueTask};
use rusqlite::{Connection, OptionalExtension as _};

use crate::jobs::{JobEntry, JobTable};

/// The due tasks of one priority whose state meets a condition. A read passes over at most 20,000 others, because a job
/// may have any number of enqueued tasks whose messages are late.
macro_rules! due_in {
    ($states:literal) => {
        concat!(
            "SELECT id, state, trigger_at FROM (SELECT id, state, trigger_at FROM task INDEXED BY task_due \
             WHERE job = ?1 AND priority = ?2 AND trigger_at <= ?3 ORDER BY trigger_at LIMIT 20000 + ?4) \
             WHERE state ",
            $states,
            " ORDER BY trigger_at LIMIT ?4"
        )
    };
}

const OTHERS: &str = due_in!("NOT IN (0, 2)");
/// This read is not bounded: the lost worker of a paused job must be noticed behind any backlog.
const OWNED: &str = "SELECT id, state, trigger_at FROM task INDEXED BY task_due \
     WHERE job = ?1 AND priority = ?2 AND trigger_at <= ?3 AND state IN (3, 4) ORDER BY trigger_at LIMIT ?4";
const OTHERS_PENDING: &str = due_in!("NOT IN (0, 2, 3, 4)");
/// Enqueued tasks, and those that wait for others.
const LATER: &str = due_in!("IN (0, 2)");
const OWED: &str = "SELECT id, state, owed_at FROM task INDEXED BY task_owed \
     WHERE job = ?1 AND owed_at <= ?2 ORDER BY owed_at LIMIT ?3";
const ANY_OWED: &str =
    "SELECT EXISTS (SELECT 1 FROM task INDEXED BY task_owed WHERE owed_at IS NOT NULL)";
const NEXT_OWED: &str = "SELECT owed_at FROM task INDEXED BY task_owed \
     WHERE job = ?1 AND owed_at > ?2 ORDER BY owed_at LIMIT 1";
const NEXT: &str = "SELECT trigger_at FROM task INDEXED BY task_due \
     WHERE job = ?1 AND priority = ?2 AND trigger_at > ?3 ORDER BY trigger_at LIMIT 1";
/// The next lower priority among the unfinished tasks.
const LOWER: &str = "SELECT priority FROM task INDEXED BY task_due \
     WHERE job = ?1 AND priority < ?2 AND trigger_at IS NOT NULL ORDER BY priority DESC LIMIT 1";

pub(crate) fn due(db: &Connection, jobs: &JobTable, query: &DueQuery) -> rusqlite::Result<DuePage> {
    let mut page = DuePage::default();
    let is_in_share = |name| {
        query
            .share
            .as_ref()
            .is_none_or(|share| share.covers(name, 0))
    };
    // Few deployments have sinks, and then few tasks owe anything most of the time.
    let any_owed = db
        .prepare_cached(ANY_OWED)?
        .query_row([], |row| row.get(0))?;
    for entry in jobs.iter().filter(|entry| is_in_share(&entry.job.name)) {
        let limit = query.limit_per_job;
        if any_owed {
            let limit = query.owed_limit_of(&entry.job.name);
            select_owed(db, entry, query.now, limit, &mut page.owed)?;
            let next_at = next_owed(db, entry, query.now)?;
            page.next_at = page.next_at.into_iter().chain(next_at).min();
        }
        let pending_limit = query.pending_limits.get(&entry.job.name);
        let (mut left, mut owned_left) = (pending_limit.map_or(limit, |p| (*p).min(limit)), limit);
        // Unowned tasks that are not wanted now count neither as due nor for `next_at`.
        let wants_pending = left > 0;
        let levels = levels(db, entry, query.now)?;
        let tasks = &mut page.tasks;
        for level in &levels {
            if pending_limit.is_none() {
                page.more |= level.select(db, OTHERS, &mut left, tasks)?;
            } else {
                page.more |= level.select(db, OWNED, &mut owned_left, tasks)?;
                if !wants_pending {
                    continue;
                }
                page.more |= level.select(db, OTHERS_PENDING, &mut left, tasks)?;
            }
            let next_at = level.next_at(db)?;
            page.next_at = page.next_at.into_iter().chain(next_at).min();
        }
        if wants_pending {
            for level in &levels {
                page.more |= level.select(db, LATER, &mut left, tasks)?;
            }
        }
    }
    Ok(page)
}

/// The priorities of the unfinished tasks of a job, highest first.
fn levels<'a>(
    db: &Connection,
    entry: &'a JobEntry,
    now: Timestamp,
) -> rusqlite::Result<Vec<Level<'a>>> {
    let mut lower = db.prepare_cached(LOWER)?;
    let (mut levels, mut above) = (Vec::new(), i64::MAX);
    while let Some(priority) = lower
        .query_row((entry.row, above), |row| row.get(0))
        .optional()?
    {
        levels.push(Level {
            entry,
            priority,
            now,
        });
        above = priority;
    }
    Ok(levels)
}

/// Adds up to `limit` tasks that owe an effect now.
fn select_owed(
    db: &Connection,
    entry: &JobEntry,
    now: Timestamp,
    limit: usize,
    tasks: &mut Vec<DueTask>,
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(OWED)?;
    let mut rows = statement.query((entry.row, now.millis(), limit))?;
    while let Some(row) = rows.next()? {
        tasks.extend(due_task(entry, row)?);
    }
    Ok(())
}

/// When the next task of a job that owes an effect is due again.
fn next_owed(
    db: &Connection,
    entry: &JobEntry,
    now: Timestamp,
) -> rusqlite::Result<Option<Timestamp>> {
    let mut statement = db.prepare_cached(NEXT_OWED)?;
    let next: Option<i64> = statement
        .query_row((entry.row, now.millis()), |row| row.get(0))
        .optional()?;
    Ok(next.map(Timestamp::clamped))
}

/// A row of a due query; `None` for a state that this version does not know.
fn due_task(entry: &JobEntry, row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<DueTask>> {
    let Some(kind) = StateKind::from_code(row.get(1)?) else {
        return Ok(None);
    };
    Ok(Some(DueTask {
        job: entry.job.name.clone(),
        id: TaskId::from_bytes(row.get(0)?),
        kind,
        trigger_at: Timestamp::clamped(row.get(2)?),
    }))
}

/// The tasks of one priority of a job.
struct Level<'a> {
    entry: &'a JobEntry,
    priority: i64,
    now: Timestamp,
}

impl Level<'_> {
    /// Adds up to `left` due tasks to `tasks`, oldest first, and subtracts them from `left`. Answers whether there are
    /// more.
    fn select(
        &self,
        db: &Connection,
        sql: &str,
        left: &mut usize,
        tasks: &mut Vec<DueTask>,
    ) -> rusqlite::Result<bool> {
        let limit = left.saturating_add(1);
        let mut statement = db.prepare_cached(sql)?;
        let key = (self.entry.row, self.priority, self.now.millis(), limit);
        let mut rows = statement.query(key)?;
        while let Some(row) = rows.next()? {
            if *left == 0 {
                return Ok(true);
            }
            let Some(task) = due_task(self.entry, row)? else {
                continue;
            };
            *left -= 1;
            tasks.push(task);
        }
        Ok(false)
    }

    /// The earliest trigger time that has not passed.
    fn next_at(&self, db: &Connection) -> rusqlite::Result<Option<Timestamp>> {
        let key = (self.entry.row, self.priority, self.now.millis());
        let mut statement = db.prepare_cached(NEXT)?;
        let next: Option<i64> = statement.query_row(key, |row| row.get(0)).optional()?;
        Ok(next.map(Timestamp::clamped))
    }
}
