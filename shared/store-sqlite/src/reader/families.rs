//! Edges of tasks that wait for others.

use dueline_domain::{JobName, TaskAddress, TaskEnd, TaskId};
use dueline_ports::{EdgePage, EdgeQuery, StoredEdge};
use rusqlite::{Connection, Row, types::Type};

use crate::{jobs::JobEntry, row};

pub(crate) fn edges(
    db: &Connection,
    entry: &JobEntry,
    query: &EdgeQuery,
) -> rusqlite::Result<EdgePage> {
    let mut statement = db.prepare_cached(
        "SELECT to_job, to_task, ended FROM edge WHERE job = ?1 AND task = ?2 AND kind = ?3 \
         AND (to_job, to_task) > (?4, ?5) ORDER BY to_job, to_task LIMIT ?6",
    )?;
    // No job has an empty name, so that every edge is behind it.
    let (job, id) = match &query.after {
        Some(after) => (after.job.as_str(), after.id.as_bytes().as_slice()),
        None => ("", [].as_slice()),
    };
    let kind = row::edge_code(query.kind);
    let limit = query.limit.saturating_add(1);
    let key = (entry.row, query.from.id.as_bytes(), kind, job, id, limit);
    let rows = statement.query_map(key, |row| {
        let to = address(row)?;
        let end = row.get_ref(2)?.as_str_or_null()?;
        let end = end.map(|end| TaskEnd::from_name(end).ok_or_else(|| corrupt(2, "unknown end")));
        let end = end.transpose()?;
        Ok(StoredEdge { to, end })
    })?;
    let mut edges: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    let more = edges.len() > query.limit;
    edges.truncate(query.limit);
    Ok(EdgePage { edges, more })
}

pub(crate) fn open_children(
    db: &Connection,
    entry: &JobEntry,
    parent: &TaskId,
    limit: usize,
) -> rusqlite::Result<Vec<TaskAddress>> {
    let mut statement = db.prepare_cached(
        "SELECT to_job, to_task FROM edge INDEXED BY edge_open \
         WHERE job = ?1 AND task = ?2 AND kind = 1 AND ended IS NULL LIMIT ?3",
    )?;
    let rows = statement.query_map((entry.row, parent.as_bytes(), limit), address)?;
    rows.collect()
}

/// The task that an edge leads to, from the first two columns.
fn address(row: &Row<'_>) -> rusqlite::Result<TaskAddress> {
    let job = JobName::parse(row.get_ref(0)?.as_str()?);
    let job = job.map_err(|error| corrupt(0, &error.to_string()))?;
    let id = TaskId::from_bytes(row.get(1)?);
    Ok(TaskAddress { job, id })
}

fn corrupt(column: usize, why: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why.to_owned().into())
}
