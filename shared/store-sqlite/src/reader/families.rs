//! Edges of tasks that wait for others.

use dueline_domain::{JobName, TaskAddress, TaskId};
use dueline_ports::{EdgePage, EdgeQuery};
use rusqlite::{Connection, types::Type};

use crate::jobs::JobEntry;

pub(crate) fn edges(
    db: &Connection,
    entry: &JobEntry,
    query: &EdgeQuery,
) -> rusqlite::Result<EdgePage> {
    let mut statement = db.prepare_cached(
        "SELECT to_job, to_task FROM edge WHERE job = ?1 AND task = ?2 AND kind = 0 AND (to_job, to_task) > (?3, ?4) \
         ORDER BY to_job, to_task LIMIT ?5",
    )?;
    // No job has an empty name, so that every edge is behind it.
    let (job, id) = match &query.after {
        Some(after) => (after.job.as_str(), after.id.as_bytes().as_slice()),
        None => ("", [].as_slice()),
    };
    let limit = query.limit.saturating_add(1);
    let key = (entry.row, query.from.id.as_bytes(), job, id, limit);
    let rows = statement.query_map(key, |row| {
        let job = JobName::parse(row.get_ref(0)?.as_str()?).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.to_string().into())
        })?;
        let id = TaskId::from_bytes(row.get(1)?);
        Ok(TaskAddress { job, id })
    })?;
    let mut followers: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    let more = followers.len() > query.limit;
    followers.truncate(query.limit);
    Ok(EdgePage { followers, more })
}
