//! Lanes: the first due tasks of each fairness key of a job.

use std::sync::Arc;

use dueline_domain::{StateKind, TaskId, Timestamp};
use dueline_ports::{DueTask, Lane, LanePage, LaneQuery};
use rusqlite::{Connection, OptionalExtension as _};

use crate::jobs::JobEntry;

const FIRST: &str = "SELECT lane FROM task INDEXED BY task_lane \
     WHERE job = ?1 AND lane_at IS NOT NULL ORDER BY lane LIMIT 1";
const NEXT: &str = "SELECT lane FROM task INDEXED BY task_lane \
     WHERE job = ?1 AND lane > ?2 AND lane_at IS NOT NULL ORDER BY lane LIMIT 1";
/// The next lower priority in a lane.
const LOWER: &str = "SELECT priority FROM task INDEXED BY task_lane \
     WHERE job = ?1 AND lane = ?2 AND priority < ?3 AND lane_at IS NOT NULL ORDER BY priority DESC LIMIT 1";
const DUE: &str = "SELECT id, state, lane_at FROM task INDEXED BY task_lane \
     WHERE job = ?1 AND lane = ?2 AND priority = ?3 AND lane_at <= ?4 ORDER BY lane_at LIMIT ?5";
const NEXT_DUE: &str = "SELECT lane_at FROM task INDEXED BY task_lane_due \
     WHERE job = ?1 AND lane_at > ?2 ORDER BY lane_at LIMIT 1";
const ANY_DUE: &str = "SELECT EXISTS (SELECT 1 FROM task INDEXED BY task_lane_due \
     WHERE job = ?1 AND lane_at <= ?2)";
const OLDEST: &str = "SELECT lane_at FROM task INDEXED BY task_lane_due \
     WHERE job = ?1 AND lane_at IS NOT NULL ORDER BY lane_at LIMIT 1";

pub(crate) fn lanes(
    db: &Connection,
    entry: &JobEntry,
    query: &LaneQuery,
) -> rusqlite::Result<LanePage> {
    let mut page = LanePage::default();
    if !query.is_covered() {
        return Ok(page);
    }
    let (job, now) = (entry.row, query.now.millis());
    page.next_at = time_of(db, NEXT_DUE, (job, now))?;
    // Lanes whose tasks are all due later need not be examined.
    let any_due: bool = db
        .prepare_cached(ANY_DUE)?
        .query_row((job, now), |row| row.get(0))?;
    if !any_due {
        return Ok(page);
    }
    // First one task of each lane. Most calls find more lanes than they may return tasks.
    let mut examined = 0;
    let mut name = next_lane(db, entry, query.after.as_deref())?;
    while let Some(lane) = name
        && page.lanes.len() < query.tasks_max
        && examined < query.lanes_max()
    {
        examined += 1;
        let tasks = due_in_lane(db, entry, &lane, query.now, 1)?;
        name = next_lane(db, entry, Some(&lane))?;
        page.end = name.as_ref().map(|_| lane.clone());
        if !tasks.is_empty() {
            page.lanes.push(Lane { name: lane, tasks });
        }
    }
    let per_lane = query.tasks_per_lane(page.lanes.len());
    for lane in &mut page.lanes {
        lane.tasks = due_in_lane(db, entry, &lane.name, query.now, per_lane + 1)?;
        page.has_more |= lane.tasks.len() > per_lane;
        lane.tasks.truncate(per_lane);
    }
    Ok(page)
}

/// The earliest trigger time of a task that waits in a lane.
pub(super) fn oldest(db: &Connection, entry: &JobEntry) -> rusqlite::Result<Option<Timestamp>> {
    time_of(db, OLDEST, (entry.row,))
}

fn time_of(
    db: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Option<Timestamp>> {
    let at: Option<i64> = db
        .prepare_cached(sql)?
        .query_row(params, |row| row.get(0))
        .optional()?;
    Ok(at.map(Timestamp::clamped))
}

fn next_lane(
    db: &Connection,
    entry: &JobEntry,
    after: Option<&str>,
) -> rusqlite::Result<Option<Arc<str>>> {
    let name = |row: &rusqlite::Row<'_>| Ok(Arc::from(row.get_ref(0)?.as_str()?));
    match after {
        None => db.prepare_cached(FIRST)?.query_row([entry.row], name),
        Some(after) => db.prepare_cached(NEXT)?.query_row((entry.row, after), name),
    }
    .optional()
}

/// Up to `limit` due tasks of a lane, by priority and then oldest first.
fn due_in_lane(
    db: &Connection,
    entry: &JobEntry,
    lane: &str,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<DueTask>> {
    let mut lower = db.prepare_cached(LOWER)?;
    let mut due = db.prepare_cached(DUE)?;
    let (mut tasks, mut above) = (Vec::new(), i64::MAX);
    while tasks.len() < limit
        && let Some(priority) = lower
            .query_row((entry.row, lane, above), |row| row.get::<_, i64>(0))
            .optional()?
    {
        above = priority;
        let left = limit - tasks.len();
        let mut rows = due.query((entry.row, lane, priority, now.millis(), left))?;
        while let Some(row) = rows.next()? {
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
    }
    Ok(tasks)
}
