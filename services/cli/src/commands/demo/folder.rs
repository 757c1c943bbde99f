//! The folder that a demo works in.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use crate::exit::CliError;

/// A folder of its own for one demo, gone when this is dropped unless it is kept.
#[derive(Debug)]
pub(super) struct WorkFolder {
    path: PathBuf,
    keep: bool,
}

impl WorkFolder {
    /// Makes it in `wanted`, or else where temporary files belong; never inside `input`, where the next demo would find
    /// it.
    pub(super) fn make(
        wanted: Option<&Path>,
        input: &Path,
        number: u64,
        keep: bool,
    ) -> Result<Self, CliError> {
        let input = input.canonicalize()?;
        let parent = match wanted {
            Some(wanted) => {
                let unusable = |error: io::Error| {
                    CliError::invalid(format!("cannot use --work {}: {error}", wanted.display()))
                };
                let is_outside = !existing(wanted).map_err(unusable)?.starts_with(&input);
                let make = || {
                    fs::create_dir_all(wanted)?;
                    wanted.canonicalize()
                };
                is_outside.then(make).transpose().map_err(unusable)?
            }
            None => [std::env::temp_dir(), "/var/tmp".into()]
                .into_iter()
                .filter_map(|parent| parent.canonicalize().ok())
                .find(|parent| !parent.starts_with(&input)),
        };
        let Some(parent) = parent else {
            let message = format!("the demo cannot work inside {}", input.display());
            return Err(CliError::invalid(message)
                .with_hint("name a folder outside the input with --work DIR"));
        };
        let path = parent.join(format!("dueline-demo-{number:016x}"));
        let readable = path.to_str().filter(|path| !path.contains(['?', '\n']));
        if readable.is_none() {
            let message = format!("cannot work in {}: the name is not usable", path.display());
            return Err(CliError::invalid(message)
                .with_hint("name a folder without '?' and line breaks with --work DIR"));
        }
        // Others have no business in copies of the files.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| {
                let message = format!("cannot work in {}: {error}", parent.display());
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

/// The part of a path that is there, in full.
fn existing(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let found = path.ancestors().find_map(|part| part.canonicalize().ok());
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            eprintln!("failed to remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_goes_away_unless_it_is_kept() {
        use std::os::unix::fs::PermissionsExt as _;
        let (home, input) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for keep in [false, true] {
            let make = WorkFolder::make(Some(home.path()), input.path(), 7, keep);
            let folder = make.unwrap();
            let path = folder.path().to_owned();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            fs::write(folder.database(), "x").unwrap();
            drop(folder);
            assert_eq!(path.exists(), keep);
        }
        assert!(home.path().exists());
    }

    #[test]
    fn no_demo_works_inside_its_input() {
        let input = tempfile::tempdir().unwrap();
        for wanted in [input.path().to_owned(), input.path().join("a/b")] {
            let error = WorkFolder::make(Some(&wanted), input.path(), 7, false).unwrap_err();
            assert!(error.to_string().contains("cannot work inside"), "{error}");
        }
        assert_eq!(fs::read_dir(input.path()).unwrap().count(), 0);
        assert!(WorkFolder::make(None, Path::new("/"), 7, false).is_err());
        // The folder of temporary files itself may be the input.
        let other = WorkFolder::make(None, &std::env::temp_dir(), 7, false);
        assert!(other.is_ok_and(|folder| folder.path().starts_with("/var/tmp")));
    }
}
