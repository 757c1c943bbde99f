//! Whether the names of the database and its log still lead to the files that this process has open.
//!
//! A deleted or replaced file accepts writes as before, and they end with the process. Where no inode numbers exist, an
//! open file cannot be deleted.

use std::{
    fs::Metadata,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::lock::with_suffix;

/// The names of the database and its log, each with the file that it led to at the start.
pub(super) struct FileNames([(PathBuf, Option<FileId>); 2]);

type FileId = (u64, u64);

impl FileNames {
    /// The names for the database at `path`. Its log must exist by now.
    pub(super) fn of(path: &Path) -> Self {
        let named = |path: PathBuf| {
            let id = path.metadata().ok().and_then(|metadata| file_id(&metadata));
            (path, id)
        };
        Self([path.to_owned(), with_suffix(path, "-wal")].map(named))
    }

    /// The first name that does not lead to its file any more.
    pub(super) fn lost(&self) -> Option<&Path> {
        let is_lost = |(path, id): &&(PathBuf, Option<FileId>)| match path.metadata() {
            Ok(metadata) => id.is_some() && file_id(&metadata) != *id,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        let lost = self.0.iter().find(is_lost);
        lost.map(|(path, _)| path.as_path())
    }
}

#[cfg(unix)]
fn file_id(metadata: &Metadata) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;

    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn file_id(_: &Metadata) -> Option<FileId> {
    None
}
