//! Paths of the programs under test.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The `dueline` program beside this test. It is built when it is missing.
pub fn dueline() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("dueline"))
}

/// A program of the `dueline-cli` package beside this test. It is built when it is missing.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    // target/debug/deps/test-1234 and target/debug/dueline
    let folder = test
        .ancestors()
        .nth(2)
        .expect("a test binary is two folders deep");
    let program = folder.join(name);
    if !program.is_file() {
        build(name);
    }
    assert!(program.is_file(), "there is no {}", program.display());
    program
}

fn build(name: &str) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "-p", "dueline-cli", "--bin", name])
        .status()
        .expect("cargo runs");
    assert!(built.success(), "failed to build the {name} program");
}
