//! Lists of tasks, newest first. Each page scans a bounded number of rows.

use std::sync::Arc;

use dueline_domain::{StateKind, Timestamp};
use dueline_ports::{ListQuery, Page, StoreError};
use rusqlite::{Connection, ToSql};

use crate::{jobs::JobEntry, row};

/// Most rows scanned for one page. A filter that few tasks match gives short or empty pages with a cursor, instead of
/// one long read.
const ROWS_SCANNED_MAX: usize = 50_000;

/// The condition of the partial index of dead letters.
const IS_DEAD: &str = " AND state >= 7";

/// The row number that a cursor encodes: the last row of the previous page. A cursor is `p-` and the number in
/// hexadecimal; the prefix keeps it from being mistaken for an id.
pub(crate) fn parse_cursor(cursor: Option<&str>) -> Result<i64, StoreError> {
    let Some(text) = cursor else {
        return Ok(i64::MAX);
    };
    text.strip_prefix("p-")
        .and_then(|hex| i64::from_str_radix(hex, 16).ok())
        .filter(|seq| *seq > 0)
        .ok_or_else(|| StoreError::Invalid(Arc::from("cursor was not made by this store")))
}

pub(crate) fn list(
    db: &Connection,
    entry: &JobEntry,
    query: &ListQuery,
    before: i64,
) -> rusqlite::Result<Page> {
    let limit = query.limit.clamp(1, 1_000);
    let states: Vec<u8> = query.states.iter().map(|kind| kind.code()).collect();
    let is_dead = |kind: &StateKind| kind.code() >= StateKind::Failed.code();
    let only_dead = !query.states.is_empty() && query.states.iter().all(is_dead);
    let index = if query.key.is_some() {
        "task_key"
    } else if only_dead {
        "task_dead"
    } else {
        "task_by_job"
    };
    let mut filter = String::new();
    let mut values: Vec<Box<dyn ToSql>> = vec![Box::new(entry.row), Box::new(before)];
    let mut clause = |sql: &str, value: Box<dyn ToSql>| {
        values.push(value);
        filter.push_str(sql);
    };
    if !states.is_empty() {
        for (index, state) in states.iter().enumerate() {
            let last = index + 1 == states.len();
            let open = if index == 0 { " AND state IN (?" } else { ",?" };
            clause(
                &format!("{open}{}", if last { ")" } else { "" }),
                Box::new(*state),
            );
        }
    }
    if let Some(tag) = &query.tag {
        let sql = " AND extras IS NOT NULL AND EXISTS \
                   (SELECT 1 FROM json_each(extras, '$.tags') WHERE value = ?)";
        clause(sql, Box::new(tag.to_string()));
    }
    if let Some(name) = &query.name {
        clause(" AND extras ->> '$.name' = ?", Box::new(name.to_string()));
    }
    if let Some(schedule) = &query.schedule {
        let sql = " AND extras ->> '$.firing.s' = ?";
        clause(sql, Box::new(schedule.to_string()));
    }
    if let Some(key) = &query.key {
        clause(
            " AND key = ? AND key_lost IS NULL",
            Box::new(key.to_string()),
        );
    }
    if let Some(from) = query.due_from {
        clause(" AND run_at >= ?", Box::new(Timestamp::millis(from)));
    }
    if let Some(until) = query.due_before {
        clause(" AND run_at < ?", Box::new(Timestamp::millis(until)));
    }
    if only_dead {
        // SQLite uses the partial index only when the query contains its condition.
        filter.push_str(IS_DEAD);
    }
    // At most one task holds the key, and its index finds it however many newer tasks there are.
    let floor = match query.key {
        Some(_) => None,
        None => scan_end(db, index, entry.row, before)?,
    };
    let floor_clause = floor.map_or_else(String::new, |seq| format!(" AND seq >= {seq}"));
    let sql = format!(
        "SELECT {} FROM task INDEXED BY {index} WHERE job = ? AND seq < ?{floor_clause}{filter} \
         ORDER BY seq DESC LIMIT {}",
        row::COLUMNS,
        limit + 1
    );
    let mut statement = db.prepare_cached(&sql)?;
    let values: Vec<&dyn ToSql> = values.iter().map(AsRef::as_ref).collect();
    let mut rows = statement.query(values.as_slice())?;
    let mut tasks = Vec::new();
    let mut last = before;
    let mut next = None;
    let mut rows_read = 0;
    while let Some(found) = rows.next()? {
        // Rows are counted, not tasks: an unreadable row must not make this page appear to be the last one.
        if rows_read == limit {
            next = Some(last);
            break;
        }
        rows_read += 1;
        last = found.get(0)?;
        let may_have_blobs = row::may_have_blobs(found)?;
        match row::read(found, &entry.job.name) {
            Ok(stored) => {
                let stored = row::with_blobs(db, stored, may_have_blobs)?;
                tasks.push(stored.task);
            }
            // One unreadable row must not hide the others.
            Err(error) => tracing::error!(%error, "unreadable task"),
        }
    }
    let next = next.or(floor).map(|seq| Arc::from(format!("p-{seq:x}")));
    Ok(Page { tasks, next })
}

/// The row number at which the scan for one page ends, if the job has more rows than one scan covers.
fn scan_end(db: &Connection, index: &str, job: i64, before: i64) -> rusqlite::Result<Option<i64>> {
    let dead = if index == "task_dead" { IS_DEAD } else { "" };
    let sql = format!(
        "SELECT seq FROM task INDEXED BY {index} WHERE job = ?1 AND seq < ?2 {dead} \
         ORDER BY seq DESC LIMIT 1 OFFSET {ROWS_SCANNED_MAX}"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query((job, before))?;
    rows.next()?.map(|row| row.get(0)).transpose()
}
