//! Lanes: the first due tasks of each fairness key of a job.

use std::sync::Arc;

use dueline_domain::{StateKind, TaskId, Timestamp};
use dueline_ports::{DueTask, Lane, LanePage, LaneQuery};
use rusqlite::{Connection, OptionalExtension as _};

use crate::jobs::JobEntry;

/// Lanes that are looked at for each one that is asked for, so that a call is bounded where most lanes have no due task.
const LANES_PER_TASK: usize = 4;

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
const OLDEST: &str = "SELECT lane_at FROM task INDEXED BY task_lane_due \
     WHERE job = ?1 AND lane_at IS NOT NULL ORDER BY lane_at LIMIT 1";

pub(crate) fn lanes(
    db: &Connection,
    entry: &JobEntry,
    query: &LaneQuery,
) -> rusqlite::Result<LanePage> {
    let covers = |share: &dueline_ports::Share| share.covers(&entry.job.name, 0);
    if !query.share.as_ref().is_none_or(covers) {
        return Ok(LanePage {
            is_last: true,
            ..LanePage::default()
        });
    }
    let mut page = LanePage {
        next_at: time_of(db, NEXT_DUE, (entry.row, query.now.millis()))?,
        ..LanePage::default()
    };
    let mut with_tasks = 0;
    let mut after = query.after.clone();
    // First one task of each lane. Most calls find more lanes than they may return tasks.
    while with_tasks < query.tasks_max && page.lanes.len() < query.tasks_max * LANES_PER_TASK {
        let Some(name) = next_lane(db, entry, after.as_deref())? else {
            page.is_last = true;
            break;
        };
        let tasks = due_in_lane(db, entry, &name, query.now, 1)?;
        with_tasks += usize::from(!tasks.is_empty());
        after = Some(name.clone());
        page.lanes.push(Lane { name, tasks });
    }
    let per_lane = query.tasks_per_lane(with_tasks);
    if per_lane > 1 {
        for lane in page.lanes.iter_mut().filter(|lane| !lane.tasks.is_empty()) {
            lane.tasks = due_in_lane(db, entry, &lane.name, query.now, per_lane)?;
        }
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
