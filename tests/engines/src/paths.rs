//! Paths of the repository and the build folder.

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders deep")
}

/// The folder of built and fetched engines: `engines` in the build folder of this test.
pub(crate) fn engines() -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    // cargo marks its build folder with this file, also when the folder is configured.
    let target = test
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target.map_or_else(
        || root().join("target/engines"),
        |target| target.join("engines"),
    )
}

/// The folder of the dynoxide package.
pub(crate) fn dynoxide_package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dynoxide")
}

/// The script that starts the other engines.
pub(crate) fn script() -> PathBuf {
    root().join("localstack/engines.sh")
}
