//! Finds the input files of a demo.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// An input file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoFile {
    /// The absolute path.
    pub path: PathBuf,
    /// The size when the file was found.
    pub bytes: u64,
    /// The modification time when the file was found, where the file system has one.
    pub modified: Option<SystemTime>,
}

/// The input files, and notes about files that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundFiles {
    /// Regular files in the order of their paths.
    pub files: Vec<DemoFile>,
    /// Messages about what was skipped.
    pub notes: Vec<String>,
}

/// The regular files below `directory`, at most `files_max`. Skipped are symbolic links, everything below `except`, and
/// names that are not UTF-8, because JSON cannot carry them.
pub fn walk(directory: &Path, except: &Path, files_max: usize) -> io::Result<FoundFiles> {
    let root = directory.canonicalize()?;
    // A directory that does not exist yet has nothing to skip.
    let except = except.canonicalize().ok();
    let mut found = FoundFiles::default();
    // A stack: the last directory is read next, so directories are pushed in reverse order.
    let mut open = vec![root.clone()];
    while let Some(directory) = open.pop() {
        let mut entries = match entries(&directory) {
            Ok(entries) => entries,
            Err(error) if directory == root => return Err(error),
            Err(error) => {
                found.skip(&directory, &error.to_string());
                continue;
            }
        };
        entries.sort();
        let mut below = Vec::new();
        for path in entries {
            if path.to_str().is_none() {
                found.skip(&path, "its name is not UTF-8");
                continue;
            }
            // Not `metadata`: that would follow symbolic links.
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                Err(error) => {
                    found.skip(&path, &error.to_string());
                    continue;
                }
            };
            if metadata.is_dir() {
                if Some(&path) != except.as_ref() {
                    below.push(path);
                }
            } else if metadata.is_symlink() {
                found.skip(&path, "it is a symbolic link");
            } else if !metadata.is_file() {
                found.skip(&path, "it is not a regular file");
            } else if found.files.len() == files_max {
                let note = format!("stopped at {files_max} files; further files are skipped");
                found.notes.push(note);
                return Ok(found);
            } else {
                let (bytes, modified) = (metadata.len(), metadata.modified().ok());
                found.files.push(DemoFile {
                    path,
                    bytes,
                    modified,
                });
            }
        }
        open.extend(below.into_iter().rev());
    }
    Ok(found)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect()
}

impl FoundFiles {
    fn skip(&mut self, path: &Path, why: &str) {
        self.notes.push(format!("skipped {path:?}: {why}"));
    }
}

impl DemoFile {
    /// Whether the file changed, or was removed, after it was found.
    pub fn is_changed(&self) -> bool {
        match fs::symlink_metadata(&self.path) {
            Ok(now) => now.len() != self.bytes || now.modified().ok() != self.modified,
            Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_names_are_found_in_order_and_the_rest_is_skipped_with_a_note() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        for name in [
            "a b.txt",
            "empty",
            "-dash",
            "new\nline",
            "'quote\"",
            "sub/ü",
            "work/out.gz",
        ] {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        fs::write(dir.join("empty"), "").unwrap();
        #[cfg(unix)]
        {
            use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
            std::os::unix::fs::symlink(dir.join("empty"), dir.join("link")).unwrap();
            std::os::unix::fs::symlink(dir, dir.join("loop")).unwrap();
            fs::write(dir.join(OsStr::from_bytes(b"bad\xff")), "x").unwrap();
        }
        let found = walk(dir, &dir.join("work"), 100).unwrap();
        let root = dir.canonicalize().unwrap();
        let names: Vec<_> = found
            .files
            .iter()
            .map(|file| file.path.strip_prefix(&root).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "'quote\"",
                "-dash",
                "a b.txt",
                "empty",
                "new\nline",
                "sub/ü"
            ]
        );
        assert_eq!(found.files[3].bytes, 0);
        #[cfg(unix)]
        assert_eq!(found.notes.len(), 3, "{:?}", found.notes);
    }

    #[test]
    fn the_walk_stops_at_the_limit_with_a_note() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..5 {
            fs::write(home.path().join(number.to_string()), "").unwrap();
        }
        let found = walk(home.path(), Path::new("/nowhere"), 3).unwrap();
        assert_eq!(found.files.len(), 3);
        assert!(found.notes[0].contains("further files are skipped"));
    }

    #[test]
    fn a_directory_that_does_not_exist_is_an_error() {
        assert!(walk(Path::new("/no/such/directory"), Path::new("/nowhere"), 1).is_err());
    }

    #[test]
    fn a_file_that_was_written_after_the_walk_is_changed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("f");
        fs::write(&path, "one").unwrap();
        let file = walk(home.path(), Path::new("/nowhere"), 1)
            .unwrap()
            .files
            .remove(0);
        assert!(!file.is_changed());
        fs::write(&path, "three").unwrap();
        assert!(file.is_changed());
    }
}
