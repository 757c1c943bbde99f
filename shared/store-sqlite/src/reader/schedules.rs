//! Schedules.

use std::collections::BTreeMap;

use bytes::Bytes;
use dueline_domain::{JobName, Schedule, ScheduleName, Timestamp, WriteId};
use dueline_ports::{DueSchedulesPage, DueSchedulesQuery, schedule_shard};
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::jobs::{JobEntry, JobTable};

/// Most rows that are read for one page of due schedules. Those of other consumers are among them.
const ROWS_READ_MAX: usize = 10_000;

/// Reads the columns `name, write_id, record, payload`. An unreadable schedule is logged and left out, so that it does
/// not hide the others.
fn read(row: &Row<'_>, job: &JobName) -> rusqlite::Result<Option<Schedule>> {
    let text = row.get_ref(0)?.as_str()?;
    let write = WriteId::from_stored(row.get(1)?).ok_or_else(|| "the write id is zero".to_owned());
    let json = row.get_ref(2)?.as_str()?;
    let payload = Bytes::copy_from_slice(row.get_ref(3)?.as_blob()?);
    let name = ScheduleName::parse(text).map_err(|error| error.to_string());
    let schedule = name.and_then(|name| {
        dueline_records::schedule_from_json((job.clone(), name), json, payload, write?)
            .map_err(|error| error.to_string())
    });
    Ok(schedule
        .inspect_err(|error| {
            tracing::error!(job.name = %job, schedule.name = text, %error, "unreadable schedule");
        })
        .ok())
}

pub(crate) fn schedule(
    db: &Connection,
    entry: &JobEntry,
    name: &ScheduleName,
) -> rusqlite::Result<Option<Schedule>> {
    let found = db
        .prepare_cached(
            "SELECT name, write_id, record, payload FROM schedule WHERE job = ?1 AND name = ?2",
        )?
        .query_row((entry.row, name.as_str()), |row| read(row, &entry.job.name))
        .optional()?;
    Ok(found.flatten())
}

/// Schedules of a job by name, after the given one.
pub(crate) fn schedules(
    db: &Connection,
    entry: &JobEntry,
    after: Option<&ScheduleName>,
    limit: usize,
) -> rusqlite::Result<Vec<Schedule>> {
    let mut statement = db.prepare_cached(
        "SELECT name, write_id, record, payload FROM schedule \
         WHERE job = ?1 AND name > ?2 ORDER BY name LIMIT ?3",
    )?;
    let after = after.map_or("", ScheduleName::as_str);
    let mut rows = statement.query((entry.row, after, limit))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.extend(read(row, &entry.job.name)?);
    }
    Ok(found)
}

pub(crate) fn due_schedules(
    db: &Connection,
    jobs: &JobTable,
    query: &DueSchedulesQuery,
) -> rusqlite::Result<DueSchedulesPage> {
    let jobs: BTreeMap<i64, &JobName> = jobs
        .iter()
        .map(|entry| (entry.row, &entry.job.name))
        .collect();
    let mut statement = db.prepare_cached(
        "SELECT name, write_id, record, payload, job FROM schedule INDEXED BY schedule_due \
         WHERE wake_at IS NOT NULL AND wake_at <= ?1 ORDER BY wake_at LIMIT ?2",
    )?;
    let mut rows = statement.query((query.now.millis(), ROWS_READ_MAX))?;
    let mut page = DueSchedulesPage::default();
    while let Some(row) = rows.next()? {
        let Some(job) = jobs.get(&row.get(4)?) else {
            continue;
        };
        let name = row.get_ref(0)?.as_str()?;
        let is_mine = query.share.as_ref().is_none_or(|share| {
            let name = ScheduleName::parse(name);
            name.is_ok_and(|name| share.covers_schedules(schedule_shard(job, &name)))
        });
        if !is_mine {
            continue;
        }
        if page.schedules.len() >= query.limit {
            page.more = true;
            break;
        }
        page.schedules.extend(read(row, job)?);
    }
    let next_at: Option<i64> = db
        .prepare_cached(
            "SELECT wake_at FROM schedule INDEXED BY schedule_due \
             WHERE wake_at IS NOT NULL AND wake_at > ?1 ORDER BY wake_at LIMIT 1",
        )?
        .query_row([query.now.millis()], |row| row.get(0))
        .optional()?;
    page.next_at = next_at.map(Timestamp::clamped);
    Ok(page)
}
