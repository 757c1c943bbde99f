//! Opening a file: one owner, the right schema, the promised durability.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use crate::{schema, wal};

/// Largest file that is read through at every start: 64 MiB in pages of 4 KiB.
const CHECKED_PAGES_MAX: u32 = 16_384;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A power failure: each commit is flushed to the disk before it is acknowledged (`synchronous=FULL`).
    #[default]
    Full,
    /// The end of the process; a power failure may lose the last commits (`synchronous=NORMAL`).
    Normal,
}

impl Durability {
    /// The name in settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Normal => "normal",
        }
    }
}

/// How to open a file.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The file; created if it is missing.
    pub path: PathBuf,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Most pages of 4 KiB that the file may have; `None` for as many as the disk holds.
    pub pages_max: Option<u32>,
}

impl SqliteOptions {
    /// The file at `path` with full durability.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            durability: Durability::Full,
            pages_max: None,
        }
    }
}

/// Why a file was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process owns the file.
    #[error("'{path}' is in use by {owner}; only one server may own a file")]
    InUse {
        /// The file.
        path: String,
        /// The owner's entry in the lock file.
        owner: String,
    },
    /// The file has further hard links, by which another server may open it.
    #[error(
        "'{path}' has {names} names (hard links), and SQLite would keep a separate log for each; remove the other \
         names, or use a copy of the file"
    )]
    Linked {
        /// The file.
        path: String,
        /// How many names it has.
        names: u64,
    },
    /// The file cannot be written.
    #[error(
        "'{path}' is not writable: this user lacks the permission, or the disk is mounted read-only; a server needs \
         write access to its file"
    )]
    ReadOnly {
        /// The file.
        path: String,
    },
    /// The file was written by a newer program.
    #[error(
        "the file has schema version {found}, this program supports up to {known}; use a newer dueline"
    )]
    Newer {
        /// The version of the file.
        found: i32,
        /// The newest version that this program supports.
        known: i32,
    },
    /// The file belongs to another program, or is not a database.
    #[error("the file is not a dueline store")]
    Foreign,
    /// The file is damaged.
    #[error("the file is damaged: {0}; restore it from a backup")]
    Damaged(String),
    /// SQLite did not apply a required setting.
    #[error("SQLite did not apply the setting {setting}: it reports '{found}'")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What was read back.
        found: String,
    },
    /// The file or its folder cannot be used.
    #[error("cannot use '{path}'")]
    Io {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// SQLite could not open the file.
    #[error("SQLite could not open the file")]
    Sqlite(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => Self::Foreign,
            Some(rusqlite::ErrorCode::DatabaseCorrupt) => Self::Damaged(error.to_string()),
            _ => Self::Sqlite(error),
        }
    }
}

/// Opens the connection that writes, checks the file and migrates it to the current schema.
pub(crate) fn open_writer(options: &SqliteOptions) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(&options.path, flags)?;
    check_writable(&db, &options.path)?;
    // Check before changing anything: a foreign file must stay as it is.
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && application != schema::APPLICATION_ID {
        return Err(OpenError::Foreign);
    }
    wal::make_durable(&db, &options.path)?;
    settings(&db, options.durability)?;
    check(&db)?;
    schema::migrate(&mut db)?;
    if let Some(pages) = options.pages_max {
        limit_pages(&db, pages)?;
    }
    Ok(db)
}

/// Refuses a file that cannot be written. SQLite itself opens such a file read-only and fails only at the first write.
fn check_writable(db: &Connection, path: &Path) -> Result<(), OpenError> {
    if db.is_readonly("main")? {
        let path = path.display().to_string();
        return Err(OpenError::ReadOnly { path });
    }
    Ok(())
}

/// Checks a small file for damage. Reading a large file would delay every start, so damage in one is reported by the
/// first statement that reads the damaged page.
fn check(db: &Connection) -> Result<(), OpenError> {
    let pages: u32 = db.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if pages > CHECKED_PAGES_MAX {
        return Ok(());
    }
    let found: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" {
        Ok(())
    } else {
        Err(OpenError::Damaged(found))
    }
}

/// Limits the size of the file. A limit below the current size keeps the current size.
pub(crate) fn limit_pages(db: &Connection, pages: u32) -> rusqlite::Result<()> {
    db.query_row(&format!("PRAGMA max_page_count={pages}"), [], |_| Ok(()))
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(options: &SqliteOptions) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(&options.path, flags)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.execute_batch("PRAGMA query_only=ON; PRAGMA cache_size=-4096;")?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

fn settings(db: &Connection, durability: Durability) -> Result<(), OpenError> {
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    let journal: String = db.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    if journal != "wal" {
        return Err(OpenError::Setting {
            setting: "journal_mode=WAL",
            found: journal,
        });
    }
    // 1 is NORMAL, 2 is FULL. The setting is read back, because SQLite ignores values that it does not know.
    let level = match durability {
        Durability::Full => 2,
        Durability::Normal => 1,
    };
    db.pragma_update(None, "synchronous", level)?;
    let found: i64 = db.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    if found != level {
        return Err(OpenError::Setting {
            setting: "synchronous",
            found: found.to_string(),
        });
    }
    // 64 MiB of page cache. A checkpoint each 16 MiB keeps the log short and rarely delays small transactions.
    db.execute_batch(
        "PRAGMA cache_size=-65536; PRAGMA wal_autocheckpoint=4000; PRAGMA foreign_keys=OFF;
         PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=67108864;",
    )?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_connection_is_refused_as_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.db");
        let db = Connection::open(&path).unwrap();
        assert!(check_writable(&db, &path).is_ok());
        drop(db);
        let db = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let error = check_writable(&db, &path).unwrap_err();
        assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
    }
}
