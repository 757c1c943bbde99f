//! Reads of single tasks, ready and owned tasks, counts and workers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dueline_domain::{
    Priority, StateKind, Task, TaskId, TaskRef, Timestamp, Token, Weight, WorkerId,
};
use dueline_ports::{JobStats, OwnedTask, WorkerRecord};
use rusqlite::{Connection, OptionalExtension as _};

use super::lanes;
use crate::{
    jobs::{JobEntry, JobTable},
    row,
};

pub(crate) fn get(
    db: &Connection,
    entry: &JobEntry,
    id: &TaskId,
) -> rusqlite::Result<Option<Task>> {
    let found = row::find(db, &entry.job.name, entry.row, id)?;
    Ok(found.map(|stored| stored.task))
}

/// Enqueued tasks in the order in which they should be dispatched.
pub(crate) fn ready(
    db: &Connection,
    entry: &JobEntry,
    limit: usize,
) -> rusqlite::Result<Vec<TaskRef>> {
    let mut statement = db.prepare_cached(
        "SELECT id, token, priority, weight, run_at, extras ->> '$.trace', extras ->> '$.turns', changed_at FROM task INDEXED BY task_ready \
         WHERE job = ?1 AND state = 2 ORDER BY priority DESC, run_at, seq LIMIT ?2",
    )?;
    let mut rows = statement.query((entry.row, limit))?;
    let mut messages = Vec::with_capacity(limit.min(10_000));
    while let Some(row) = rows.next()? {
        let (Some(token), Ok(priority), Ok(weight)) = (
            Token::from_stored(row.get(1)?),
            Priority::new(row.get(2)?),
            Weight::new(row.get(3)?),
        ) else {
            continue;
        };
        // As in the message of a task.
        let takes_turns: Option<bool> = row.get(6)?;
        let (priority, due_at) = match takes_turns {
            Some(true) => (Priority::default(), row.get(7)?),
            _ => (priority, row.get(4)?),
        };
        messages.push(TaskRef {
            job: entry.job.name.clone(),
            id: TaskId::from_bytes(row.get(0)?),
            token,
            priority,
            weight,
            due_at: Timestamp::clamped(due_at),
            trace: row.get_ref(5)?.as_str_or_null()?.map(Arc::from),
        });
    }
    Ok(messages)
}

pub(crate) fn owned(
    db: &Connection,
    jobs: &JobTable,
    worker: Option<&WorkerId>,
) -> rusqlite::Result<Vec<OwnedTask>> {
    let mut tasks = Vec::new();
    for entry in jobs.iter() {
        // The index contains the state, so only rows of owned tasks are read.
        let mut statement = db.prepare_cached(
            "SELECT id, state, token, worker FROM task INDEXED BY task_due \
             WHERE job = ?1 AND trigger_at IS NOT NULL AND state IN (3, 4) AND (?2 IS NULL OR worker = ?2)",
        )?;
        let mut rows = statement.query((entry.row, worker.map(WorkerId::as_str)))?;
        while let Some(row) = rows.next()? {
            let (Some(kind), Some(token), Ok(worker)) = (
                StateKind::from_code(row.get(1)?),
                Token::from_stored(row.get(2)?),
                WorkerId::parse(row.get_ref(3)?.as_str()?),
            ) else {
                continue;
            };
            tasks.push(OwnedTask {
                job: entry.job.name.clone(),
                id: TaskId::from_bytes(row.get(0)?),
                kind,
                token,
                worker,
            });
        }
    }
    Ok(tasks)
}

pub(crate) fn stats(db: &Connection, entry: &JobEntry) -> rusqlite::Result<JobStats> {
    let mut by_state = BTreeMap::new();
    let mut counts =
        db.prepare_cached("SELECT state, n FROM job_state WHERE job = ?1 AND n > 0")?;
    let mut rows = counts.query([entry.row])?;
    while let Some(row) = rows.next()? {
        if let Some(kind) = StateKind::from_code(row.get(0)?) {
            by_state.insert(kind, row.get(1)?);
        }
    }
    let oldest = oldest_pending(db, entry)?.map(Timestamp::clamped);
    let in_lanes = match entry.job.fair_share {
        Some(_) => lanes::oldest(db, entry)?,
        None => None,
    };
    let oldest_due_at = oldest.into_iter().chain(in_lanes).min();
    Ok(JobStats {
        by_state,
        oldest_due_at,
        partial: false,
        age: Duration::ZERO,
    })
}

/// The earliest trigger time of an unowned task. The index is by priority, so the earliest of each one is read.
fn oldest_pending(db: &Connection, entry: &JobEntry) -> rusqlite::Result<Option<i64>> {
    let mut lower = db.prepare_cached(
        "SELECT priority FROM task INDEXED BY task_due \
         WHERE job = ?1 AND priority < ?2 AND trigger_at IS NOT NULL ORDER BY priority DESC LIMIT 1",
    )?;
    let mut first = db.prepare_cached(
        "SELECT trigger_at FROM task INDEXED BY task_due \
         WHERE job = ?1 AND priority = ?2 AND trigger_at IS NOT NULL AND state NOT IN (3, 4) \
         ORDER BY trigger_at LIMIT 1",
    )?;
    let (mut oldest, mut priority) = (None::<i64>, i64::MAX);
    while let Some(next) = lower
        .query_row((entry.row, priority), |row| row.get(0))
        .optional()?
    {
        priority = next;
        let at: Option<i64> = first
            .query_row((entry.row, priority), |row| row.get(0))
            .optional()?;
        oldest = oldest.into_iter().chain(at).min();
    }
    Ok(oldest)
}

pub(crate) fn workers(db: &Connection) -> rusqlite::Result<Vec<WorkerRecord>> {
    let mut statement = db.prepare_cached("SELECT id, record FROM worker ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut workers = Vec::new();
    while let Some(row) = rows.next()? {
        let id = row.get_ref(0)?.as_str()?;
        match dueline_records::worker_from_json(id, row.get_ref(1)?.as_str()?) {
            Ok(worker) => workers.push(worker),
            Err(error) => tracing::error!(worker.id = id, %error, "unreadable worker record"),
        }
    }
    Ok(workers)
}
