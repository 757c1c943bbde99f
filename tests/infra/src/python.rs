//! Python tools, installed once.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The installed packages, each with its exact version; the folder is named after the first one.
const PACKAGES: [&str; 2] = ["cfn-lint==1.58.0", "boto3==1.43.106"];
const FOLDER: &str = "cfn-lint-1.58.0";
const REQUIREMENTS: &str = "these tests need python3 (3.10 or later) with venv and pip, and access to PyPI once; on Debian: apt-get install python3 python3-venv";

/// The result of a command.
#[derive(Clone, Debug)]
pub struct CommandResult {
    /// Whether it succeeded.
    pub success: bool,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
}

/// A Python interpreter with the tools installed.
pub fn python() -> Command {
    Command::new(venv().join("bin/python"))
}

/// Runs a command of [`python`].
pub fn run_python(command: &mut Command) -> CommandResult {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("failed to run {command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    CommandResult {
        success: output.status.success(),
        output: text(output.stdout),
        errors: text(output.stderr),
    }
}

/// Runs cfn-lint on a template; warnings fail, informational messages do not.
pub fn cfn_lint(template: &Path) -> CommandResult {
    let mut command = Command::new(venv().join("bin/cfn-lint"));
    run_python(command.arg("--template").arg(template))
}

/// The virtual environment, created if it is missing. When several test processes need it at once, one of them creates
/// it and the others wait.
fn venv() -> &'static Path {
    static VENV: OnceLock<PathBuf> = OnceLock::new();
    VENV.get_or_init(|| {
        let engines = target().join("engines");
        fs::create_dir_all(&engines).expect("target can be written");
        let lock = File::create(engines.join(format!("{FOLDER}.lock"))).expect("a lock file");
        lock.lock().expect("a lock");
        let folder = engines.join(FOLDER);
        let stamp = folder.join("installed");
        let packages = PACKAGES.join("\n");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == packages) {
            return folder;
        }
        // The remains of an interrupted installation would be mistaken for a complete one.
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("an unfinished installation can be removed");
        }
        install(&folder);
        fs::write(&stamp, packages).expect("target can be written");
        folder
    })
}

fn install(folder: &Path) {
    let mut venv = Command::new("python3");
    run_or_panic(venv.args(["-m", "venv"]).arg(folder));
    let mut pip = Command::new(folder.join("bin/python"));
    run_or_panic(
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(PACKAGES),
    );
}

fn run_or_panic(command: &mut Command) {
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "{command:?} failed: {}\n{REQUIREMENTS}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("failed to run {command:?}: {error}\n{REQUIREMENTS}"),
    }
}

/// The build folder of cargo; the test is in `debug/deps` below it.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test program");
    test.ancestors()
        .nth(3)
        .expect("a test program is three folders deep")
        .to_owned()
}
