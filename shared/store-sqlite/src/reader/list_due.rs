//! Lists of tasks by due time: of those that wait for their time, which the index of due tasks has in this order within each
//! priority.

use std::{cmp::Reverse, sync::Arc};

use dueline_domain::StateKind;
use dueline_ports::{ListQuery, Page, StoreError};
use rusqlite::{Connection, OptionalExtension as _, ToSql};

use crate::{jobs::JobEntry, row};

use super::list::Filter;

/// Most entries of the index that are read of one priority for one page: the index also holds tasks that do not wait for
/// their time.
const ENTRIES_MAX: usize = 50_000;
/// Most tasks of one priority that are tested against the filters of one page.
const TESTED_MAX: usize = 5_000;

/// Where a task stands: trigger time, state, row. Tasks that are due at the same time are in the order of the index.
type Position = (i64, u8, i64);

/// The next lower priority among the unfinished tasks.
const LOWER: &str = "SELECT priority FROM task INDEXED BY task_due \
     WHERE job = ?1 AND priority < ?2 AND trigger_at IS NOT NULL ORDER BY priority DESC LIMIT 1";

/// The entries of one priority (`?2`), in both directions. Those of tasks that wait in lanes have an index of their own, with all
/// priorities.
macro_rules! entries {
    ($index:literal, $at:literal, $priority:literal, $compare:literal, $order:literal) => {
        concat!(
            "SELECT ",
            $at,
            ", state, seq FROM task INDEXED BY ",
            $index,
            " WHERE job = ?1 AND ",
            $priority,
            $at,
            " ",
            $compare,
            "= ?3 AND (",
            $at,
            ", state, seq) ",
            $compare,
            " (?3, ?4, ?5) ORDER BY ",
            $at,
            $order,
            ", state",
            $order,
            ", seq",
            $order,
            " LIMIT ?6"
        )
    };
}

const FIRST: &str = entries!("task_due", "trigger_at", "priority = ?2 AND ", ">", "");
const LAST: &str = entries!("task_due", "trigger_at", "priority = ?2 AND ", "<", " DESC");
const FIRST_IN_LANES: &str = entries!("task_lane_due", "lane_at", "?2 IS NULL AND ", ">", "");
const LAST_IN_LANES: &str = entries!("task_lane_due", "lane_at", "?2 IS NULL AND ", "<", " DESC");

const fn prefix(descending: bool) -> &'static str {
    if descending { "e-" } else { "d-" }
}

fn cursor((at, state, seq): Position, descending: bool) -> Arc<str> {
    format!("{}{at:x}.{state:x}.{seq:x}", prefix(descending)).into()
}

/// Before the first position of a list.
const fn start(descending: bool) -> Position {
    match descending {
        false => (i64::MIN, 0, 0),
        true => (i64::MAX, u8::MAX, i64::MAX),
    }
}

/// The position that a cursor of this order encodes.
pub(crate) fn parse_cursor(text: Option<&str>, descending: bool) -> Result<Position, StoreError> {
    let Some(text) = text else {
        return Ok(start(descending));
    };
    let parse = || {
        let mut parts = text.strip_prefix(prefix(descending))?.split('.');
        let at = i64::from_str_radix(parts.next()?, 16).ok()?;
        let state = u8::from_str_radix(parts.next()?, 16).ok()?;
        let seq = i64::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some((at, state, seq))
    };
    parse().ok_or_else(|| {
        StoreError::Invalid(Arc::from("cursor was not made by a list in this order"))
    })
}

/// Positions in the order of a list. Those behind `known_to` are not known.
struct Candidates {
    positions: Vec<Position>,
    known_to: Option<Position>,
    descending: bool,
}

impl Candidates {
    fn is_before(&self, a: Position, b: Position) -> bool {
        if self.descending { a > b } else { a < b }
    }

    /// From this position on something was left out.
    fn cut(&mut self, at: Position) {
        if self.known_to.is_none_or(|known| self.is_before(at, known)) {
            self.known_to = Some(at);
        }
    }

    /// Sorts, and keeps the first ones.
    fn keep(&mut self, max: usize) {
        match self.descending {
            false => self.positions.sort_unstable(),
            true => self
                .positions
                .sort_unstable_by_key(|position| Reverse(*position)),
        }
        if self.positions.len() > max {
            let last = self.positions[max - 1];
            self.positions.truncate(max);
            self.cut(last);
        }
    }
}

pub(crate) fn list_due(
    db: &Connection,
    entry: &JobEntry,
    query: &ListQuery,
    after: Position,
) -> rusqlite::Result<Page> {
    let limit = query.limit.clamp(1, 1_000);
    let filter = Filter::of(query);
    let tested_max = match filter.sql.is_empty() {
        true => limit + 1,
        false => TESTED_MAX,
    };
    let candidates = candidates(db, entry, query, after, tested_max)?;
    let descending = query.order.is_descending();
    let mut page = Page::default();
    let sql = format!(
        "SELECT {} FROM task WHERE job = ? AND seq = ?{}",
        row::COLUMNS,
        filter.sql
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut last = None;
    for position in &candidates.positions {
        if candidates
            .known_to
            .is_some_and(|known| candidates.is_before(known, *position))
        {
            break;
        }
        if page.tasks.len() == limit {
            page.next = last.map(|last| cursor(last, descending));
            return Ok(page);
        }
        let mut values: Vec<&dyn ToSql> = vec![&entry.row, &position.2];
        values.extend(filter.values.iter().map(AsRef::as_ref));
        let mut rows = statement.query(values.as_slice())?;
        last = Some(*position);
        let Some(found) = rows.next()? else {
            continue;
        };
        let may_have_blobs = row::may_have_blobs(found)?;
        match row::read(found, &entry.job.name) {
            Ok(stored) => page
                .tasks
                .push(row::with_blobs(db, stored, may_have_blobs)?.task),
            // One unreadable row must not hide the others.
            Err(error) => tracing::error!(%error, "unreadable task"),
        }
    }
    page.next = candidates.known_to.map(|known| cursor(known, descending));
    Ok(page)
}

/// The first positions behind `after`, of all priorities.
fn candidates(
    db: &Connection,
    entry: &JobEntry,
    query: &ListQuery,
    after: Position,
    max: usize,
) -> rusqlite::Result<Candidates> {
    let descending = query.order.is_descending();
    let wanted: Vec<u8> = query
        .states
        .iter()
        .map(|kind| StateKind::code(*kind))
        .collect();
    let mut all = Candidates {
        positions: Vec::new(),
        known_to: None,
        descending,
    };
    let (in_lanes, of_priority) = match descending {
        true => (LAST_IN_LANES, LAST),
        false => (FIRST_IN_LANES, FIRST),
    };
    let mut above = i64::from(i32::MAX);
    // First the tasks of all lanes, which are in no order by priority.
    let mut priority = None;
    loop {
        let sql = if priority.is_none() {
            in_lanes
        } else {
            of_priority
        };
        let mut statement = db.prepare_cached(sql)?;
        let (at, state, seq) = after;
        let values = (entry.row, priority, at, state, seq, ENTRIES_MAX);
        let mut rows = statement.query(values)?;
        let (mut read, mut found, mut last) = (0, 0, None);
        while let Some(row) = rows.next()? {
            let position: Position = (row.get(0)?, row.get(1)?, row.get(2)?);
            read += 1;
            last = Some(position);
            if wanted.contains(&position.1) {
                all.positions.push(position);
                found += 1;
            }
            if found == max {
                break;
            }
        }
        if let Some(last) = last.filter(|_| found == max || read == ENTRIES_MAX) {
            all.cut(last);
        }
        all.keep(max);
        match next_priority(db, entry.row, above)? {
            Some(lower) => (above, priority) = (lower, Some(lower)),
            None => break,
        }
    }
    Ok(all)
}

fn next_priority(db: &Connection, job: i64, above: i64) -> rusqlite::Result<Option<i64>> {
    let mut statement = db.prepare_cached(LOWER)?;
    statement
        .query_row((job, above), |row| row.get(0))
        .optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_024_a_cursor_belongs_to_its_direction() {
        let position = (1_700_000_000_000, 1, 77);
        for descending in [false, true] {
            let text = cursor(position, descending);
            assert_eq!(parse_cursor(Some(&text), descending).ok(), Some(position));
            assert!(parse_cursor(Some(&text), !descending).is_err());
        }
        for foreign in ["", "p-1", "d-1", "d-1.2", "d-1.2.3.4", "d-x.1.1"] {
            assert!(parse_cursor(Some(foreign), false).is_err(), "{foreign}");
        }
    }
}
