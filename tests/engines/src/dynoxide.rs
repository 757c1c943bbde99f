//! Builds the dynoxide program, once per version of its source.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::paths;

/// The sources of the program; a change of them makes another program.
const SOURCE: [&str; 3] = [
    include_str!("../dynoxide/Cargo.toml"),
    include_str!("../dynoxide/Cargo.lock"),
    include_str!("../dynoxide/src/main.rs"),
];

/// The path of the program. Building it takes minutes the first time.
pub(crate) fn program() -> Result<PathBuf, String> {
    let folder = paths::engines();
    let program = folder.join(format!("dynoxide-{:016x}", key()));
    if program.is_file() {
        return Ok(program);
    }
    let failed = |error: io::Error| format!("failed to write to {}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let lock = File::create(folder.join("dynoxide.lock")).map_err(failed)?;
    // Test programs start together: one of them builds, the others wait. The lock ends with its process, even if
    // killed.
    lock.lock().map_err(failed)?;
    if !program.is_file() {
        let built = build(&folder.join("dynoxide"))?;
        // The rename is atomic, so no incomplete program is visible.
        let complete = folder.join("dynoxide.new");
        fs::copy(built, &complete).map_err(failed)?;
        fs::rename(complete, &program).map_err(failed)?;
    }
    Ok(program)
}

fn key() -> u64 {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    hasher.finish()
}

/// Builds the program with the cargo and the environment of this test. Returns the path of the executable.
fn build(target: &Path) -> Result<PathBuf, String> {
    // A failed write is ignored: the message only explains the long wait.
    let _ = writeln!(
        io::stderr(),
        "    building dynoxide for the tests (once, takes minutes)"
    );
    let package = paths::dynoxide_package();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .args(["build", "--locked", "--quiet"])
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .current_dir(&package)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("failed to run {}: {error}", cargo.display()))?;
    if !output.status.success() {
        return Err(format!("failed to build {}", package.display()));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| "cargo built dynoxide but reported no executable".to_owned())
}
