//! The tables, as migrations. A released migration never changes; changes are added as new migrations.

use rusqlite::{Connection, TransactionBehavior};

use crate::open::OpenError;

/// SQLite's `application_id` of a Dueline file: `DUEL` as a big-endian number.
pub(crate) const APPLICATION_ID: i32 = 0x4455_454c;

/// The version of the schema that this program reads and writes.
pub const SCHEMA_VERSION: i32 = 6;

const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6];

const V1: &str = "
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    definition TEXT NOT NULL
) STRICT;

-- How many tasks of a job are in a state; kept in the same transaction as the tasks.
CREATE TABLE job_state (
    job INTEGER NOT NULL,
    state INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (job, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE task (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    job INTEGER NOT NULL,
    state INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    trigger_at INTEGER,
    token INTEGER,
    write_id INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    worker TEXT,
    claimed_at INTEGER,
    heartbeat_at INTEGER,
    expires_at INTEGER,
    deadline_at INTEGER,
    key TEXT,
    extras TEXT,
    history TEXT,
    error TEXT,
    payload BLOB,
    checkpoint BLOB,
    result BLOB
) STRICT;

-- Payloads, checkpoints and results too large to be rewritten with each transition; the column above is NULL then.
CREATE TABLE body (
    seq INTEGER NOT NULL,
    part INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (seq, part)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX task_id ON task (job, id);
CREATE UNIQUE INDEX task_key ON task (job, key) WHERE key IS NOT NULL;
CREATE INDEX task_by_job ON task (job);
-- Finished tasks are in neither of these two, so polling costs the same however many there are.
CREATE INDEX task_due ON task (job, trigger_at, state) WHERE trigger_at IS NOT NULL;
CREATE INDEX task_ready ON task (job, priority DESC, run_at) WHERE state = 2;
-- Dead letters: failed, cancelled, trashed, dropped. A comparison, not a list: SQLite builds a temporary table for each
-- row it checks against a list, which doubles the cost of every write.
CREATE INDEX task_dead ON task (job) WHERE state >= 7;

CREATE TABLE worker (
    id TEXT PRIMARY KEY,
    record TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

const V2: &str = "
-- Due tasks are read by priority, so that a backlog of low ones does not delay those of high priority.
DROP INDEX task_due;
CREATE INDEX task_due ON task (job, priority DESC, trigger_at, state) WHERE trigger_at IS NOT NULL;
-- What a finished task owes, and when the consumer must do it next. An index of its own: these tasks may become many
-- while a sink is down, and must not be in the way of those that are due. A write of another task changes neither column,
-- so it does not touch the index.
ALTER TABLE task ADD COLUMN owed_at INTEGER;
ALTER TABLE task ADD COLUMN owed TEXT;
CREATE INDEX task_owed ON task (job, owed_at) WHERE owed_at IS NOT NULL;
";

const V3: &str = "
CREATE TABLE schedule (
    job INTEGER NOT NULL,
    name TEXT NOT NULL,
    wake_at INTEGER,
    write_id INTEGER NOT NULL,
    record TEXT NOT NULL,
    payload BLOB NOT NULL,
    UNIQUE (job, name)
) STRICT;
-- Schedules that have nothing to do, because they are paused or over, are not in here.
CREATE INDEX schedule_due ON schedule (wake_at) WHERE wake_at IS NOT NULL;
";

const V4: &str = "
-- Which tasks wait for a task; in a table of its own, so that a task does not grow with the number of its followers.
CREATE TABLE edge (
    job INTEGER NOT NULL,
    task BLOB NOT NULL,
    -- 0: a follower, 1: a child.
    kind INTEGER NOT NULL,
    to_job TEXT NOT NULL,
    to_task BLOB NOT NULL,
    -- How a child has ended.
    ended TEXT,
    PRIMARY KEY (job, task, kind, to_job, to_task)
) STRICT, WITHOUT ROWID;
-- The children that have not ended.
CREATE INDEX edge_open ON edge (job, task) WHERE kind = 1 AND ended IS NULL;
";

const V5: &str = "
-- Whether a later task has taken the key of this one over. Only such a task has a value here.
ALTER TABLE task ADD COLUMN key_lost INTEGER;
DROP INDEX task_key;
CREATE UNIQUE INDEX task_key ON task (job, key) WHERE key IS NOT NULL AND key_lost IS NULL;
";

const V6: &str = "
-- The lane of a task, in jobs whose fairness keys take turns, and its trigger time while it waits there: trigger_at is NULL
-- then. Other tasks have neither, and are in none of these indexes.
ALTER TABLE task ADD COLUMN lane TEXT;
ALTER TABLE task ADD COLUMN lane_at INTEGER;
CREATE INDEX task_lane ON task (job, lane, priority DESC, lane_at) WHERE lane_at IS NOT NULL;
CREATE INDEX task_lane_due ON task (job, lane_at) WHERE lane_at IS NOT NULL;
-- The tasks of lanes that wait for others, are enqueued or owned.
CREATE INDEX task_lane_running ON task (job, lane) WHERE lane IS NOT NULL AND trigger_at IS NOT NULL;
";

/// Migrates the file to [`SCHEMA_VERSION`], or refuses it.
pub(crate) fn migrate(db: &mut Connection) -> Result<(), OpenError> {
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i32 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let is_new = application == 0 && version == 0 && tables == 0;
    if !is_new && application != APPLICATION_ID {
        return Err(OpenError::Foreign);
    }
    if version > SCHEMA_VERSION {
        let (found, known) = (version, SCHEMA_VERSION);
        return Err(OpenError::Newer { found, known });
    }
    let applied = usize::try_from(version).map_err(|_| OpenError::Foreign)?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(applied) {
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        let version = i32::try_from(index + 1).unwrap_or(i32::MAX);
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}
