//! The work folder of a demo.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use crate::{exit::CliError, output};

/// A new folder for one demo. Dropping this value removes the folder unless `keep` is set.
#[derive(Debug)]
pub(super) struct WorkFolder {
    path: PathBuf,
    keep: bool,
}

impl WorkFolder {
    /// Creates the folder in `parent`, or else in the system's temporary folder. It is never created inside `input`,
    /// where the next demo would process its files.
    pub(super) fn create(
        parent: Option<&Path>,
        input: &Path,
        number: u64,
        keep: bool,
    ) -> Result<Self, CliError> {
        let input = input.canonicalize()?;
        let parent = match parent {
            Some(parent) => {
                let unusable = |error: io::Error| {
                    CliError::invalid(format!("cannot use --work {}: {error}", parent.display()))
                };
                let ancestor = existing_ancestor(parent).map_err(unusable)?;
                let create = || {
                    fs::create_dir_all(parent)?;
                    parent.canonicalize()
                };
                let is_outside = !ancestor.starts_with(&input);
                is_outside.then(create).transpose().map_err(unusable)?
            }
            None => [std::env::temp_dir(), "/var/tmp".into()]
                .into_iter()
                .filter_map(|parent| parent.canonicalize().ok())
                .find(|parent| !parent.starts_with(&input)),
        };
        let Some(parent) = parent else {
            let message = format!(
                "the demo cannot create its folder inside {}",
                input.display()
            );
            return Err(CliError::invalid(message)
                .with_hint("name a folder outside the input with --work DIR"));
        };
        let path = parent.join(format!("dueline-demo-{number:016x}"));
        let valid = path.to_str().filter(|path| !path.contains(['?', '\n']));
        if valid.is_none() {
            let message = format!(
                "cannot create {}: the path contains '?', a line break, or bytes that are not UTF-8",
                path.display()
            );
            return Err(CliError::invalid(message).with_hint("name another folder with --work DIR"));
        }
        // Private, because the outputs are copies of the user's files.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| {
                let message = format!("cannot create a folder in {}: {error}", parent.display());
                CliError::invalid(message).with_hint("name another folder with --work DIR")
            })?;
        Ok(Self { path, keep })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join("dueline.db")
    }
}

/// The canonical form of the longest prefix of `path` that exists.
fn existing_ancestor(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let found = path.ancestors().find_map(|part| part.canonicalize().ok());
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            let path = self.path.display();
            output::note(&format!("failed to remove {path}: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_removed_unless_it_is_kept() {
        use std::os::unix::fs::PermissionsExt as _;
        let (home, input) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for keep in [false, true] {
            let folder = WorkFolder::create(Some(home.path()), input.path(), 7, keep).unwrap();
            let path = folder.path().to_owned();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            fs::write(folder.database(), "x").unwrap();
            drop(folder);
            assert_eq!(path.exists(), keep);
        }
        assert!(home.path().exists());
    }

    #[test]
    fn the_folder_is_never_inside_the_input() {
        let input = tempfile::tempdir().unwrap();
        for parent in [input.path().to_owned(), input.path().join("a/b")] {
            let error = WorkFolder::create(Some(&parent), input.path(), 7, false).unwrap_err();
            assert!(error.to_string().contains("folder inside"), "{error}");
        }
        assert_eq!(fs::read_dir(input.path()).unwrap().count(), 0);
        assert!(WorkFolder::create(None, Path::new("/"), 7, false).is_err());
        // The input may be the system's temporary folder itself.
        let other = WorkFolder::create(None, &std::env::temp_dir(), 7, false);
        assert!(other.is_ok_and(|folder| folder.path().starts_with("/var/tmp")));
    }
}
