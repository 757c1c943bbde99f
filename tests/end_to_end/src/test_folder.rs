//! A folder for one test.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary folder that is removed when it is dropped. Declare it before the processes that use it, so that they are
/// dropped first.
pub struct TestFolder(TempDir);

impl TestFolder {
    /// An empty folder.
    #[expect(clippy::new_without_default, reason = "creates a folder on disk")]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("dueline-e2e-").tempdir();
        Self(folder.expect("a temporary folder"))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Keeps the folder on disk after this is dropped, so that its logs can be read.
    pub fn keep(&mut self) {
        self.0.disable_cleanup(true);
    }

    /// The path of the server's database.
    pub fn store(&self) -> PathBuf {
        self.file("dueline.db")
    }
}
