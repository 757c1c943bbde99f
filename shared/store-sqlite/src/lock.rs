//! The owner lock: one process owns a database file, whichever path leads to it.
//!
//! There are two locks. The first is on a `.lock` file beside the database. The file names the owner, and a second
//! store fails on its lock before it has touched the database. The `.lock` file can be deleted, so the second lock is
//! on the database itself.

use std::{
    fs::{File, Metadata, TryLockError},
    io::{self, ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
};

use crate::OpenError;

/// Most symbolic links that are followed to a file that does not exist yet.
const LINKS_MAX: usize = 40;

/// Keeps other processes from opening the file. The operating system releases the lock when the process ends.
///
/// Closing any descriptor of the database releases SQLite's own locks for the whole process, so this lock must be
/// dropped after the last connection.
pub(crate) struct OwnerLock {
    /// The canonical path of the database.
    pub(crate) path: PathBuf,
    _database: File,
    _lock_file: File,
}

/// Locks the file for this process, and creates it if it is missing.
pub(crate) fn lock(requested: &Path) -> Result<OwnerLock, OpenError> {
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |source| OpenError::Io { path, source }
    };
    let in_use = |owner: &str| OpenError::InUse {
        path: requested.display().to_string(),
        owner: owner.to_owned(),
    };
    if let Some(folder) = folder_of(requested) {
        std::fs::create_dir_all(folder).map_err(io(folder))?;
    }
    let path = canonical(requested).map_err(io(requested))?;
    // A file with several hard links is refused before a lock file is made or the file is opened.
    if let Ok(metadata) = path.metadata() {
        check_hard_links(&path, &metadata)?;
    }
    let mut lock_file = acquire_lock_file(&path, in_use)?;
    let database = open_or_create(&path).map_err(|source| database_error(&path, source))?;
    match lock_database(&database) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            // The owner may be in this very process, and closing this descriptor would release the locks of its
            // connections. Leaking one descriptor does less harm, and happens only after a lock file was deleted.
            std::mem::forget(database);
            return Err(in_use("another process, whose lock file was deleted"));
        }
        Err(TryLockError::Error(source)) => return Err(io(&path)(source)),
    }
    let metadata = database.metadata().map_err(io(&path))?;
    check_hard_links(&path, &metadata)?;
    lock_file.set_len(0).map_err(io(&path))?;
    let owner = format!("process {}\n", std::process::id());
    lock_file.write_all(owner.as_bytes()).map_err(io(&path))?;
    Ok(OwnerLock {
        path,
        _database: database,
        _lock_file: lock_file,
    })
}

/// Opens a file for reading and writing. A new file is accessible to its owner only, because payloads may be secret.
/// SQLite gives the log and its index the mode of the database.
fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Locks the file beside the database.
fn acquire_lock_file(path: &Path, in_use: impl Fn(&str) -> OpenError) -> Result<File, OpenError> {
    let lock_path = with_suffix(path, ".lock");
    let io = |source| OpenError::Io {
        path: lock_path.display().to_string(),
        source,
    };
    let mut file = open_or_create(&lock_path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            Err(in_use(match owner.trim() {
                "" => "another process",
                owner => owner,
            }))
        }
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

/// Locks the database itself, on Linux only. On a local disk of Linux a lock on a whole file does not conflict with
/// SQLite's locks on ranges of it. Elsewhere it may, and SQLite would wait for this lock; there the lock file must be
/// enough. SQLite does not support WAL on network file systems.
fn lock_database(database: &File) -> Result<(), TryLockError> {
    if cfg!(target_os = "linux") {
        database.try_lock()
    } else {
        Ok(())
    }
}

/// Refuses a file with several hard links. SQLite derives the path of the log from the path by which the file was
/// opened, so two names would have two logs and corrupt the file.
#[cfg(unix)]
fn check_hard_links(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
    use std::os::unix::fs::MetadataExt as _;

    match metadata.nlink() {
        names @ 2.. if metadata.is_file() => Err(OpenError::Linked {
            path: path.display().to_string(),
            names,
        }),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn check_hard_links(_: &Path, _: &Metadata) -> Result<(), OpenError> {
    Ok(())
}

/// The error of a database that could not be opened for writing.
fn database_error(path: &Path, source: io::Error) -> OpenError {
    let path = path.display().to_string();
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { path },
        _ => OpenError::Io { path, source },
    }
}

/// The canonical path of a file, symbolic links resolved. The file need not exist.
fn canonical(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match path.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found,
        }
        let folder = folder_of(&path).unwrap_or(Path::new(".")).canonicalize()?;
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        // A dangling link: SQLite would create its target.
        match folder.join(name).read_link() {
            Ok(target) => path = folder.join(target),
            Err(_) => return Ok(folder.join(name)),
        }
    }
    Err(ErrorKind::NotFound.into())
}

fn folder_of(path: &Path) -> Option<&Path> {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_file_and_an_unusable_one_are_different_errors() {
        let error_of = |kind: ErrorKind| database_error(Path::new("t.db"), kind.into());
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            let error = error_of(kind);
            assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
            assert!(error.to_string().contains("'t.db'"), "{error}");
        }
        let error = error_of(ErrorKind::IsADirectory);
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_missing_file_is_found_through_dangling_links() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("b.db", at("a.db")).unwrap();
        symlink(at("c.db"), at("b.db")).unwrap();
        let target = folder.path().canonicalize().unwrap().join("c.db");
        assert_eq!(canonical(&at("a.db")).unwrap(), target);
        std::fs::write(&target, "").unwrap();
        assert_eq!(canonical(&at("a.db")).unwrap(), target);
        symlink("loop", at("loop")).unwrap();
        assert!(canonical(&at("loop")).is_err());
    }
}
