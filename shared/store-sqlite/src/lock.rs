//! One owner for one database file, by whatever name it is reached.
//!
//! Two locks. The first is on a file beside the database, which holds words about the owner, and which a second store
//! meets before it has touched the database. It belongs to a name, so it can be deleted; the second is on the database
//! itself and cannot be lost that way.

use std::{
    fs::{File, Metadata, TryLockError},
    io::{self, ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
};

use crate::OpenError;

/// Symbolic links that are followed to a file which is still to be made.
const LINKS_MAX: usize = 40;

/// Keeps other processes away from the file; the operating system ends it with the process, however that ends.
///
/// Closing any descriptor of the database takes SQLite's own locks from the whole process, so this must be dropped
/// after the last connection.
pub(crate) struct OwnerLock {
    /// The database by the name that all ways to it lead to.
    pub(crate) path: PathBuf,
    _database: File,
    _words: File,
}

/// Takes the file for this process, and makes it if it is missing.
pub(crate) fn lock(given: &Path) -> Result<OwnerLock, OpenError> {
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |source| OpenError::Io { path, source }
    };
    let in_use = |owner: &str| OpenError::InUse {
        path: given.display().to_string(),
        owner: owner.to_owned(),
    };
    if let Some(folder) = folder_of(given) {
        std::fs::create_dir_all(folder).map_err(io(folder))?;
    }
    let path = real(given).map_err(io(given))?;
    // A file that nobody may own gets no lock file, and is not opened.
    if let Ok(metadata) = path.metadata() {
        check_names(&path, &metadata)?;
    }
    let mut words = take_words(&path, in_use)?;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let database = options
        .open(&path)
        .map_err(|source| database_error(&path, source))?;
    match lock_database(&database) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            // The owner may be in this very process, and closing this descriptor would take the locks of its
            // connections from it. One descriptor less is the smaller harm, and only a deleted lock file leads here.
            std::mem::forget(database);
            return Err(in_use("another process, whose lock file was deleted"));
        }
        Err(TryLockError::Error(source)) => return Err(io(&path)(source)),
    }
    let metadata = database.metadata().map_err(io(&path))?;
    check_names(&path, &metadata)?;
    words.set_len(0).map_err(io(&path))?;
    let owner = format!("process {}\n", std::process::id());
    words.write_all(owner.as_bytes()).map_err(io(&path))?;
    Ok(OwnerLock {
        path,
        _database: database,
        _words: words,
    })
}

/// Takes the file beside the database.
fn take_words(path: &Path, in_use: impl Fn(&str) -> OpenError) -> Result<File, OpenError> {
    let lock_path = with_suffix(path, ".lock");
    let io = |source| OpenError::Io {
        path: lock_path.display().to_string(),
        source,
    };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&lock_path)
        .map_err(io)?;
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

/// On a local disk of Linux a lock on a whole file and SQLite's locks on ranges of it do not see each other. Elsewhere they
/// may, and SQLite would wait for us; there the lock beside the file must do. A disk over the network is no place for
/// SQLite's log anyway.
fn lock_database(database: &File) -> Result<(), TryLockError> {
    if cfg!(target_os = "linux") {
        database.try_lock()
    } else {
        Ok(())
    }
}

/// SQLite keeps the log under the name the file was opened by, so that two names mean two logs and a broken file.
#[cfg(unix)]
fn check_names(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
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
fn check_names(_: &Path, _: &Metadata) -> Result<(), OpenError> {
    Ok(())
}

/// Why the database cannot be opened for writing.
fn database_error(path: &Path, source: io::Error) -> OpenError {
    let path = path.display().to_string();
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { path },
        _ => OpenError::Io { path, source },
    }
}

/// The file itself, through all links, also when it is still to be made.
fn real(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match path.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found,
        }
        let folder = folder_of(&path).unwrap_or(Path::new(".")).canonicalize()?;
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        // A link to nothing: SQLite would make the file it names.
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
    fn a_file_that_may_not_be_written_is_told_apart_from_one_that_cannot_be_used() {
        let of = |kind: ErrorKind| database_error(Path::new("t.db"), kind.into());
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            let error = of(kind);
            assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
            assert!(error.to_string().contains("'t.db'"), "{error}");
        }
        let error = of(ErrorKind::IsADirectory);
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_still_to_be_made_is_found_through_links_to_nothing() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("b.db", at("a.db")).unwrap();
        symlink(at("c.db"), at("b.db")).unwrap();
        let wanted = folder.path().canonicalize().unwrap().join("c.db");
        assert_eq!(real(&at("a.db")).unwrap(), wanted);
        std::fs::write(&wanted, "").unwrap();
        assert_eq!(real(&at("a.db")).unwrap(), wanted);
        symlink("loop", at("loop")).unwrap();
        assert!(real(&at("loop")).is_err());
    }
}
