//! A folder for one test.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder that is removed at the end. Declare it before the processes that use it, so that they go first.
pub struct Place(TempDir);

impl Place {
    /// An empty folder.
    #[expect(clippy::new_without_default, reason = "it does something")]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("dueline-e2e-").tempdir();
        Self(folder.expect("a temporary folder"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Leaves the folder where it is when this is dropped, for somebody who wants to know what went wrong.
    pub fn keep(&mut self) {
        self.0.disable_cleanup(true);
    }

    /// The store of the server that lives here.
    pub fn store(&self) -> PathBuf {
        self.file("dueline.db")
    }
}
