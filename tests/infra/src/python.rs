//! Tools that are written in Python, installed once.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// What is installed, each with its exact version; the folder carries the first one's.
const PACKAGES: [&str; 2] = ["cfn-lint==1.58.0", "boto3==1.43.106"];
const FOLDER: &str = "cfn-lint-1.58.0";
const NEEDED: &str = "these tests need python3 (3.10 or later) with venv and pip, and PyPI once: on Debian, apt-get install python3 python3-venv";

/// What a command said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether it ended well.
    pub success: bool,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
}

/// A Python interpreter that has the tools.
pub fn python() -> Command {
    Command::new(venv().join("bin/python"))
}

/// Runs a command of [`python`].
pub fn run_python(command: &mut Command) -> Answer {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("failed to run {command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Answer {
        success: output.status.success(),
        output: text(output.stdout),
        errors: text(output.stderr),
    }
}

/// What cfn-lint says about a template; a warning fails, a piece of advice does not.
pub fn cfn_lint(template: &Path) -> Answer {
    let mut command = Command::new(venv().join("bin/cfn-lint"));
    run_python(command.arg("--template").arg(template))
}

/// The virtual environment, made when it is missing. Tests of several processes may come at once: one makes it, the
/// others wait.
fn venv() -> &'static Path {
    static VENV: OnceLock<PathBuf> = OnceLock::new();
    VENV.get_or_init(|| {
        let engines = target().join("engines");
        fs::create_dir_all(&engines).expect("target can be written");
        let lock = File::create(engines.join(format!("{FOLDER}.lock"))).expect("a lock file");
        lock.lock().expect("a lock");
        let folder = engines.join(FOLDER);
        let done = folder.join("installed");
        let wanted = PACKAGES.join("\n");
        if fs::read_to_string(&done).is_ok_and(|found| found == wanted) {
            return folder;
        }
        // What an interrupted installation left would be taken for whole.
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("an unfinished installation can be removed");
        }
        install(&folder);
        fs::write(&done, wanted).expect("target can be written");
        folder
    })
}

fn install(folder: &Path) {
    let mut venv = Command::new("python3");
    step(venv.args(["-m", "venv"]).arg(folder));
    let mut pip = Command::new(folder.join("bin/python"));
    step(
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

fn step(command: &mut Command) {
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "{command:?} failed: {}\n{NEEDED}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("failed to run {command:?}: {error}\n{NEEDED}"),
    }
}

/// The folder that cargo builds into: the test lies in debug/deps below it.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    test.ancestors()
        .nth(3)
        .expect("a test lies three folders deep")
        .to_owned()
}
