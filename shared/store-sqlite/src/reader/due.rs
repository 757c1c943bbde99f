//! Tasks whose trigger time has passed, job by job, so that one job's backlog cannot hide another's.

use dueline_domain::{StateKind, TaskId, Timestamp};
use dueline_ports::{DuePage, DueQuery, DueTask};
use rusqlite::Connection;

use crate::jobs::{JobEntry, JobTable};

const ALL: &str = "SELECT id, state, trigger_at FROM task INDEXED BY task_due \
     WHERE job = ?1 AND trigger_at <= ?2 ORDER BY trigger_at LIMIT ?3";
const OWNED: &str = "SELECT id, state, trigger_at FROM task INDEXED BY task_due \
     WHERE job = ?1 AND trigger_at <= ?2 AND state IN (3, 4) ORDER BY trigger_at LIMIT ?3";
const PENDING: &str = "SELECT id, state, trigger_at FROM task INDEXED BY task_due \
     WHERE job = ?1 AND trigger_at <= ?2 AND state NOT IN (3, 4) ORDER BY trigger_at LIMIT ?3";
const NEXT: &str = "SELECT trigger_at FROM task INDEXED BY task_due \
     WHERE job = ?1 AND trigger_at > ?2 ORDER BY trigger_at LIMIT 1";

pub(crate) fn due(db: &Connection, jobs: &JobTable, query: &DueQuery) -> rusqlite::Result<DuePage> {
    let mut page = DuePage::default();
    let is_mine = |name| {
        query
            .share
            .as_ref()
            .is_none_or(|share| share.covers(name, 0))
    };
    for entry in jobs.iter().filter(|entry| is_mine(&entry.job.name)) {
        let limit = query.limit_per_job;
        match query.pending_limits.get(&entry.job.name) {
            None => {
                let found = select(db, ALL, entry, query.now, limit, &mut page.tasks)?;
                page.more |= found;
            }
            Some(pending) => {
                let found = select(db, OWNED, entry, query.now, limit, &mut page.tasks)?;
                page.more |= found;
                let pending = (*pending).min(limit);
                if pending == 0 {
                    // What a closed gate holds back wakes nobody.
                    continue;
                }
                let found = select(db, PENDING, entry, query.now, pending, &mut page.tasks)?;
                page.more |= found;
            }
        }
        let mut next = db.prepare_cached(NEXT)?;
        let mut rows = next.query((entry.row, query.now.millis()))?;
        if let Some(row) = rows.next()? {
            let at = Timestamp::clamped(row.get(0)?);
            page.next_at = Some(page.next_at.map_or(at, |earlier| earlier.min(at)));
        }
    }
    Ok(page)
}

/// Adds up to `limit` tasks; answers whether there are more.
fn select(
    db: &Connection,
    sql: &str,
    entry: &JobEntry,
    now: Timestamp,
    limit: usize,
    tasks: &mut Vec<DueTask>,
) -> rusqlite::Result<bool> {
    let full = tasks.len().saturating_add(limit);
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((entry.row, now.millis(), limit.saturating_add(1)))?;
    while let Some(row) = rows.next()? {
        if tasks.len() == full {
            return Ok(true);
        }
        let Some(kind) = StateKind::from_code(row.get(1)?) else {
            continue;
        };
        tasks.push(DueTask {
            job: entry.job.name.clone(),
            id: TaskId::from_bytes(row.get(0)?),
            kind,
            trigger_at: Timestamp::clamped(row.get(2)?),
        });
    }
    Ok(false)
}
