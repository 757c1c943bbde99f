//! The dynoxide program: built once per version of its source, by whoever needs it first.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::place;

/// Everything that it is built from: another text is another program.
const SOURCE: [&str; 3] = [
    include_str!("../dynoxide/Cargo.toml"),
    include_str!("../dynoxide/Cargo.lock"),
    include_str!("../dynoxide/src/main.rs"),
];

/// The program. It takes minutes when it is not there yet, and no time afterwards.
pub(crate) fn program() -> Result<PathBuf, String> {
    let folder = place::engines();
    let program = folder.join(format!("dynoxide-{:016x}", key()));
    if program.is_file() {
        return Ok(program);
    }
    let failed = |error: io::Error| format!("failed to write to {}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let lock = File::create(folder.join("dynoxide.lock")).map_err(failed)?;
    // Test programs start together: one builds, the others wait. The lock goes with its owner, even when that is killed.
    lock.lock().map_err(failed)?;
    if !program.is_file() {
        let built = build(&folder.join("dynoxide"))?;
        // It appears whole or not at all.
        let whole = folder.join("dynoxide.new");
        fs::copy(built, &whole).map_err(failed)?;
        fs::rename(whole, &program).map_err(failed)?;
    }
    Ok(program)
}

fn key() -> u64 {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    hasher.finish()
}

/// Builds it with the cargo that built us, in the environment that we have, and tells where cargo put it.
fn build(target: &Path) -> Result<PathBuf, String> {
    // Also without a listener: the test waits, and somebody may wonder why.
    let _ = writeln!(
        io::stderr(),
        "    building dynoxide for the tests (once, takes minutes)"
    );
    let package = place::dynoxide_package();
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
        .ok_or_else(|| "cargo built dynoxide and told no program".to_owned())
}
