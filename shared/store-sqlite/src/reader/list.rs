//! Lists of tasks in the order of their submits. Each page scans a bounded number of rows.

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

/// The row number that a cursor encodes: the last row of the previous page. A cursor is a prefix and the number in
/// hexadecimal; the prefix keeps it from being mistaken for an id, or for a cursor of another order.
pub(crate) fn parse_cursor(cursor: Option<&str>, descending: bool) -> Result<i64, StoreError> {
    let Some(text) = cursor else {
        return Ok(if descending { i64::MAX } else { 0 });
    };
    text.strip_prefix(prefix(descending))
        .and_then(|hex| i64::from_str_radix(hex, 16).ok())
        .filter(|seq| *seq > 0)
        .ok_or_else(|| {
            StoreError::Invalid(Arc::from("cursor was not made by a list in this order"))
        })
}

const fn prefix(descending: bool) -> &'static str {
    if descending { "p-" } else { "a-" }
}

/// The filters of a query as a part of a `WHERE` clause, with its values.
#[derive(Default)]
pub(super) struct Filter {
    pub(super) sql: String,
    pub(super) values: Vec<Box<dyn ToSql>>,
}

impl Filter {
    /// All filters but that of the states.
    pub(super) fn of(query: &ListQuery) -> Self {
        let mut filter = Self::default();
        if let Some(tag) = &query.tag {
            let sql = " AND extras IS NOT NULL AND EXISTS \
                       (SELECT 1 FROM json_each(extras, '$.tags') WHERE value = ?)";
            filter.clause(sql, tag.to_string());
        }
        if let Some(name) = &query.name {
            filter.clause(" AND extras ->> '$.name' = ?", name.to_string());
        }
        if let Some(schedule) = &query.schedule {
            let sql = " AND extras ->> '$.firing.s' = ?";
            filter.clause(sql, schedule.to_string());
        }
        if let Some(key) = &query.key {
            filter.clause(" AND key = ? AND key_lost IS NULL", key.to_string());
        }
        if let Some(from) = query.due_from {
            filter.clause(" AND run_at >= ?", Timestamp::millis(from));
        }
        if let Some(until) = query.due_before {
            filter.clause(" AND run_at < ?", Timestamp::millis(until));
        }
        filter
    }

    fn clause(&mut self, sql: &str, value: impl ToSql + 'static) {
        self.values.push(Box::new(value));
        self.sql.push_str(sql);
    }

    fn states(&mut self, states: &[StateKind]) {
        for (index, state) in states.iter().enumerate() {
            let last = index + 1 == states.len();
            let open = if index == 0 { " AND state IN (?" } else { ",?" };
            self.clause(
                &format!("{open}{}", if last { ")" } else { "" }),
                state.code(),
            );
        }
    }
}

/// Lists tasks by their rows, which are in the order of the submits.
pub(crate) fn list(
    db: &Connection,
    entry: &JobEntry,
    query: &ListQuery,
    after: i64,
) -> rusqlite::Result<Page> {
    let limit = query.limit.clamp(1, 1_000);
    let descending = query.order.is_descending();
    let is_dead = |kind: &StateKind| kind.code() >= StateKind::Failed.code();
    let only_dead = !query.states.is_empty() && query.states.iter().all(is_dead);
    let index = if query.key.is_some() {
        "task_key"
    } else if only_dead {
        "task_dead"
    } else {
        "task_by_job"
    };
    let mut filter = Filter::of(query);
    filter.states(&query.states);
    if only_dead {
        // SQLite uses the partial index only when the query contains its condition.
        filter.sql.push_str(IS_DEAD);
    }
    // At most one task holds the key, and its index finds it however many newer tasks there are.
    let end = match query.key {
        Some(_) => None,
        None => scan_end(db, index, entry.row, after, descending)?,
    };
    let (before, to_end, order) = if descending {
        ("<", ">=", "DESC")
    } else {
        (">", "<=", "ASC")
    };
    let end_clause = end.map_or_else(String::new, |seq| format!(" AND seq {to_end} {seq}"));
    let sql = format!(
        "SELECT {} FROM task INDEXED BY {index} WHERE job = ? AND seq {before} ?{end_clause}{} \
         ORDER BY seq {order} LIMIT {}",
        row::COLUMNS,
        filter.sql,
        limit + 1
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut values: Vec<&dyn ToSql> = vec![&entry.row, &after];
    values.extend(filter.values.iter().map(AsRef::as_ref));
    let mut rows = statement.query(values.as_slice())?;
    let mut tasks = Vec::new();
    let mut last = after;
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
    let next = next.or(end);
    let next = next.map(|seq| Arc::from(format!("{}{seq:x}", prefix(descending))));
    Ok(Page { tasks, next })
}

/// The row number at which the scan for one page ends, if the job has more rows than one scan covers.
fn scan_end(
    db: &Connection,
    index: &str,
    job: i64,
    after: i64,
    descending: bool,
) -> rusqlite::Result<Option<i64>> {
    let dead = if index == "task_dead" { IS_DEAD } else { "" };
    let (before, order) = if descending {
        ("<", "DESC")
    } else {
        (">", "ASC")
    };
    let sql = format!(
        "SELECT seq FROM task INDEXED BY {index} WHERE job = ?1 AND seq {before} ?2 {dead} \
         ORDER BY seq {order} LIMIT 1 OFFSET {ROWS_SCANNED_MAX}"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query((job, after))?;
    rows.next()?.map(|row| row.get(0)).transpose()
}
