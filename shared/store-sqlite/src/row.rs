//! Conversion between rows and tasks.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use dueline_domain::{
    EdgeKind, Job, JobName, Lease, Priority, State, StateKind, Task, TaskId, Timestamp, Token,
    Weight, WorkerId, WriteId,
};
use rusqlite::{
    CachedStatement, Connection, OptionalExtension as _, Row, named_params, types::Type,
};

/// Largest payload, checkpoint or result that stays in the task's own row. A larger one is a blob: a row of the table
/// `body`, so that a transition does not rewrite it.
pub(crate) const INLINE_BYTES_MAX: usize = 1024;

/// What a blob contains; the numbers are those of the column `part`.
#[derive(Clone, Copy)]
pub(crate) enum BlobKind {
    Payload = 0,
    Checkpoint = 1,
    Result = 2,
}

/// The columns of a task, in the order that [`read`] expects.
pub(crate) const COLUMNS: &str = "seq, id, state, priority, weight, run_at, trigger_at, token, write_id, tries, \
     losses, cancel_requested, created_at, changed_at, started_at, finished_at, worker, claimed_at, heartbeat_at, \
     expires_at, deadline_at, key, extras, history, error, payload, checkpoint, result, owed_at, owed, lane_at";

/// The number of a kind of edges.
pub(crate) const fn edge_code(kind: EdgeKind) -> u8 {
    match kind {
        EdgeKind::Follower => 0,
        EdgeKind::Child => 1,
        EdgeKind::Staged => 2,
    }
}

/// A task and the number of its row.
pub(crate) struct StoredTask {
    pub(crate) seq: i64,
    pub(crate) task: Task,
}

fn corrupt(column: usize, kind: Type, why: impl std::fmt::Display) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, why.to_string().into())
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::clamped)
}

fn time_opt(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let millis: Option<i64> = row.get(column)?;
    Ok(millis.map(Timestamp::clamped))
}

fn text_opt(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Arc<str>>> {
    Ok(row.get_ref(column)?.as_str_or_null()?.map(Arc::from))
}

fn bytes_opt(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Bytes>> {
    let bytes = row.get_ref(column)?.as_blob_or_null()?;
    Ok(bytes.map(Bytes::copy_from_slice))
}

/// Reads a row of [`COLUMNS`], without blobs.
pub(crate) fn read(row: &Row<'_>, job: &JobName) -> rusqlite::Result<StoredTask> {
    let code: u8 = row.get(2)?;
    let kind = StateKind::from_code(code)
        .ok_or_else(|| corrupt(2, Type::Integer, format!("unknown state {code}")))?;
    let missing = |column| corrupt(column, Type::Null, format!("a {kind} task lacks a field"));
    let trigger_at = |column| time_opt(row, column)?.ok_or_else(|| missing(column));
    // A task that waits in its lane has its trigger time there.
    let waits_until = || match time_opt(row, 6)? {
        Some(at) => Ok(at),
        None => trigger_at(30),
    };
    let token = || {
        let bits: Option<i64> = row.get(7)?;
        bits.and_then(Token::from_stored).ok_or_else(|| missing(7))
    };
    let parse_worker =
        |worker: &str| WorkerId::parse(worker).map_err(|error| corrupt(16, Type::Text, error));
    let lease = || {
        Ok::<_, rusqlite::Error>(Lease {
            worker: parse_worker(row.get_ref(16)?.as_str()?)?,
            claimed_at: trigger_at(17)?,
            heartbeat_at: trigger_at(18)?,
            expires_at: trigger_at(19)?,
            deadline_at: time_opt(row, 20)?,
        })
    };
    let state = match kind {
        StateKind::Waiting => State::Waiting {
            check_at: trigger_at(6)?,
        },
        StateKind::New => State::New {
            due_at: waits_until()?,
        },
        StateKind::Enqueued => State::Enqueued {
            token: token()?,
            expires_at: trigger_at(6)?,
        },
        StateKind::Claimed => State::Claimed {
            token: token()?,
            lease: lease()?,
        },
        StateKind::Processing => State::Processing {
            token: token()?,
            lease: lease()?,
        },
        StateKind::Retriable => State::Retriable {
            retry_at: waits_until()?,
        },
        StateKind::Succeeded => State::Succeeded,
        StateKind::Failed => State::Failed,
        StateKind::Cancelled => State::Cancelled,
        StateKind::Trashed => State::Trashed,
        StateKind::Dropped => State::Dropped,
    };
    let id: [u8; 16] = row.get(1)?;
    let write: i64 = row.get(8)?;
    let key = text_opt(row, 21)?;
    let options = match row.get_ref(22)?.as_str_or_null()? {
        Some(json) => {
            let options = dueline_records::options_from_json(json, key);
            Some(Box::new(options.map_err(|e| corrupt(22, Type::Text, e))?))
        }
        None => None,
    };
    let history = match row.get_ref(23)?.as_str_or_null()? {
        Some(json) => {
            let history = dueline_records::history_from_json(json);
            Some(Box::new(history.map_err(|e| corrupt(23, Type::Text, e))?))
        }
        None => None,
    };
    let owed = match time_opt(row, 28)? {
        Some(trigger_at) => {
            let json = row.get_ref(29)?.as_str()?;
            let owed = dueline_records::owed_from_json(json, trigger_at);
            Some(Box::new(owed.map_err(|e| corrupt(29, Type::Text, e))?))
        }
        None => None,
    };
    let priority: i64 = row.get(3)?;
    let weight: i64 = row.get(4)?;
    let task = Task {
        id: TaskId::from_bytes(id),
        job: job.clone(),
        state,
        priority: Priority::new(priority).map_err(|e| corrupt(3, Type::Integer, e))?,
        weight: Weight::new(weight).map_err(|e| corrupt(4, Type::Integer, e))?,
        run_at: time(row, 5)?,
        created_at: time(row, 12)?,
        changed_at: time(row, 13)?,
        started_at: time_opt(row, 14)?,
        finished_at: time_opt(row, 15)?,
        last_owner: match row.get_ref(16)?.as_str_or_null()? {
            Some(worker) if kind.is_final() => Some(parse_worker(worker)?),
            _ => None,
        },
        tries: row.get(9)?,
        losses: row.get(10)?,
        cancel_requested: row.get(11)?,
        write: WriteId::from_stored(write).ok_or_else(|| missing(8))?,
        payload: bytes_opt(row, 25)?.unwrap_or_default(),
        checkpoint: bytes_opt(row, 26)?,
        result: bytes_opt(row, 27)?,
        error: text_opt(row, 24)?,
        history,
        options,
        owed,
    };
    Ok(StoredTask {
        seq: row.get(0)?,
        task,
    })
}

/// Reads the blobs of a task.
pub(crate) fn read_blobs(db: &Connection, stored: &mut StoredTask) -> rusqlite::Result<()> {
    let mut blobs = db.prepare_cached("SELECT part, data FROM body WHERE seq = ?1")?;
    let mut rows = blobs.query([stored.seq])?;
    while let Some(row) = rows.next()? {
        let kind: u8 = row.get(0)?;
        let data = Bytes::copy_from_slice(row.get_ref(1)?.as_blob()?);
        match kind {
            0 => stored.task.payload = data,
            1 => stored.task.checkpoint = Some(data),
            2 => stored.task.result = Some(data),
            _ => return Err(corrupt(0, Type::Integer, format!("unknown part {kind}"))),
        }
    }
    Ok(())
}

static FIND: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM task WHERE job = ?1 AND id = ?2"));

/// One task by its id.
pub(crate) fn find(
    db: &Connection,
    job: &JobName,
    job_row: i64,
    id: &TaskId,
) -> rusqlite::Result<Option<StoredTask>> {
    let found = db
        .prepare_cached(&FIND)?
        .query_row((job_row, id.as_bytes()), |row| {
            Ok((read(row, job)?, may_have_blobs(row)?))
        })
        .optional()?;
    found
        .map(|(stored, has_blobs)| with_blobs(db, stored, has_blobs))
        .transpose()
}

/// One task by its id, and whether all of it was read: the blobs of a task with a large payload are not.
pub(crate) fn find_without_payload(
    db: &Connection,
    job: &JobName,
    job_row: i64,
    id: &TaskId,
) -> rusqlite::Result<Option<(StoredTask, bool)>> {
    let found = db
        .prepare_cached(&FIND)?
        .query_row((job_row, id.as_bytes()), |row| {
            let is_payload_a_blob = row.get_ref(25)?.data_type() == Type::Null;
            Ok((read(row, job)?, may_have_blobs(row)?, is_payload_a_blob))
        })
        .optional()?;
    Ok(match found {
        None => None,
        Some((stored, _, true)) => Some((stored, false)),
        // Its next event finds it in the cache.
        Some((stored, has_blobs, false)) => Some((with_blobs(db, stored, has_blobs)?, true)),
    })
}

/// Whether the task of a row may have blobs: the column of a blob is NULL.
pub(crate) fn may_have_blobs(row: &Row<'_>) -> rusqlite::Result<bool> {
    let is_null = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.data_type() == Type::Null);
    // An empty payload is stored as zero bytes, so NULL means a blob. The column of a checkpoint or result is also NULL
    // when there is none; only a task that has run can have one.
    let tries: u32 = row.get(9)?;
    let has_run = tries > 0 || !is_null(23)?;
    Ok(is_null(25)? || (has_run && (is_null(26)? || is_null(27)?)))
}

/// The task with its blobs read, if it may have any.
pub(crate) fn with_blobs(
    db: &Connection,
    mut stored: StoredTask,
    may_have_blobs: bool,
) -> rusqlite::Result<StoredTask> {
    if may_have_blobs {
        read_blobs(db, &mut stored)?;
    }
    Ok(stored)
}

/// The value of a payload, checkpoint or result column: NULL when there is none, or when it is stored as a blob.
pub(crate) fn inline(bytes: Option<&Bytes>) -> Option<&[u8]> {
    bytes
        .filter(|bytes| bytes.len() <= INLINE_BYTES_MAX)
        .map(AsRef::as_ref)
}

/// Stores a blob if the bytes are too large for their column.
pub(crate) fn put_blob(
    db: &Connection,
    seq: i64,
    kind: BlobKind,
    bytes: Option<&Bytes>,
) -> rusqlite::Result<()> {
    let Some(bytes) = bytes.filter(|bytes| bytes.len() > INLINE_BYTES_MAX) else {
        return Ok(());
    };
    db.prepare_cached("INSERT OR REPLACE INTO body (seq, part, data) VALUES (?1, ?2, ?3)")?
        .execute((seq, kind as u8, bytes.as_ref()))?;
    Ok(())
}

/// Deletes a blob, if there is one.
pub(crate) fn delete_blob(db: &Connection, seq: i64, kind: BlobKind) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM body WHERE seq = ?1 AND part = ?2")?
        .execute((seq, kind as u8))?;
    Ok(())
}

/// Inserts a task; answers whether it was new.
pub(crate) fn insert(
    statement: &mut CachedStatement<'_>,
    job_row: i64,
    task: &Task,
) -> rusqlite::Result<bool> {
    let options = task.options.as_deref();
    let extras_json = options.map(dueline_records::options_to_json);
    let lease = task.lease();
    let inserted = statement.execute(rusqlite::params![
        task.id.as_bytes(),
        job_row,
        task.kind().code(),
        task.priority.get(),
        task.weight.get(),
        task.run_at.millis(),
        task.state.trigger_at().map(Timestamp::millis),
        task.state.token().map(Token::to_stored),
        task.write.to_stored(),
        task.created_at.millis(),
        options.and_then(|options| options.key.as_deref()),
        extras_json,
        inline(Some(&task.payload)),
        lease.map(|lease| lease.worker.as_str()),
        lease.map(|lease| lease.claimed_at.millis()),
        lease.map(|lease| lease.expires_at.millis()),
    ])?;
    Ok(inserted == 1)
}

/// Inserts a new task. It has no run, no history and no result, so those columns are NULL.
pub(crate) const INSERT: &str = "INSERT INTO task (id, job, state, priority, weight, run_at, trigger_at, token, \
     write_id, tries, losses, cancel_requested, created_at, changed_at, key, extras, payload, worker, claimed_at, \
     heartbeat_at, expires_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, 0, 0, ?10, ?10, ?11, ?12, ?13, ?14, ?15, ?15, ?16) \
     ON CONFLICT DO NOTHING";

/// Updates all columns that a transition may set, except those that a user may modify.
pub(crate) const UPDATE: &str = "UPDATE task SET state = ?2, trigger_at = ?3, token = ?4, write_id = ?5, tries = ?6, \
     losses = ?7, cancel_requested = ?8, changed_at = ?9, started_at = ?10, finished_at = ?11, worker = ?12, \
     claimed_at = ?13, heartbeat_at = ?14, expires_at = ?15, deadline_at = ?16, history = ?17, error = ?18, \
     checkpoint = ?19, result = ?20 WHERE seq = ?1";

/// Writes the state of a task.
pub(crate) fn update(
    statement: &mut CachedStatement<'_>,
    seq: i64,
    task: &Task,
) -> rusqlite::Result<()> {
    let lease = task.lease();
    let history = task
        .history
        .as_deref()
        .map(dueline_records::history_to_json);
    statement.execute(rusqlite::params![
        seq,
        task.kind().code(),
        task.state.trigger_at().map(Timestamp::millis),
        task.state.token().map(Token::to_stored),
        task.write.to_stored(),
        task.tries,
        task.losses,
        task.cancel_requested,
        task.changed_at.millis(),
        task.started_at.map(Timestamp::millis),
        task.finished_at.map(Timestamp::millis),
        task.worker().map(WorkerId::as_str),
        lease.map(|lease| lease.claimed_at.millis()),
        lease.map(|lease| lease.heartbeat_at.millis()),
        lease.map(|lease| lease.expires_at.millis()),
        lease.and_then(|lease| lease.deadline_at.map(Timestamp::millis)),
        history,
        task.error.as_deref(),
        inline(task.checkpoint.as_ref()),
        inline(task.result.as_ref()),
    ])?;
    Ok(())
}

/// Moves a task of a job with lanes into its lane, or out of it. Called after the row is written.
pub(crate) fn update_lane(
    db: &Connection,
    seq: i64,
    job: &Job,
    task: &Task,
) -> rusqlite::Result<()> {
    let trigger_at = task.state.trigger_at().map(Timestamp::millis);
    let in_lane = job.lane_of(task).is_some();
    db.prepare_cached("UPDATE task SET lane = ?2, lane_at = ?3, trigger_at = ?4 WHERE seq = ?1")?
        .execute((
            seq,
            task.lane_name(),
            trigger_at.filter(|_| in_lane),
            trigger_at.filter(|_| !in_lane),
        ))?;
    Ok(())
}

/// Writes what a task owes.
pub(crate) fn update_owed(db: &Connection, seq: i64, task: &Task) -> rusqlite::Result<()> {
    let owed = task.owed.as_deref();
    db.prepare_cached("UPDATE task SET owed_at = ?2, owed = ?3 WHERE seq = ?1")?
        .execute((
            seq,
            owed.map(|owed| owed.trigger_at.millis()),
            owed.map(dueline_records::owed_to_json),
        ))?;
    Ok(())
}

/// Writes the fields that most tasks leave empty.
pub(crate) fn update_options(db: &Connection, seq: i64, task: &Task) -> rusqlite::Result<()> {
    let options = task.options.as_deref();
    db.prepare_cached("UPDATE task SET extras = ?2 WHERE seq = ?1")?
        .execute((seq, options.map(dueline_records::options_to_json)))?;
    Ok(())
}

/// Writes the columns that a user may modify.
pub(crate) fn update_modified(db: &Connection, seq: i64, task: &Task) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE task SET priority = :priority, weight = :weight, run_at = :run_at, extras = :extras, payload = :payload \
         WHERE seq = :seq",
    )?
    .execute(named_params! {
        ":seq": seq,
        ":priority": task.priority.get(),
        ":weight": task.weight.get(),
        ":run_at": task.run_at.millis(),
        ":extras": task.options.as_deref().map(dueline_records::options_to_json),
        ":payload": inline(Some(&task.payload)),
    })?;
    if task.payload.len() > INLINE_BYTES_MAX {
        put_blob(db, seq, BlobKind::Payload, Some(&task.payload))
    } else {
        delete_blob(db, seq, BlobKind::Payload)
    }
}
