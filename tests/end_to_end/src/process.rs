//! A child process and its exit.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::{TestFolder, dueline};

/// A start takes a fraction of a second, and much more on a busy machine.
const START_MAX: Duration = Duration::from_secs(30);
/// Environment variables that child processes inherit; all others, such as `DUELINE_*` and proxies, are removed.
const INHERITED_VARIABLES: [&str; 3] = ["PATH", "HOME", "LANG"];
/// Lines of a log that a failure message shows.
const LOG_TAIL_LINES: usize = 40;

/// A child process that is killed when it is dropped.
pub struct ChildProcess {
    name: String,
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: PathBuf,
}

impl ChildProcess {
    /// Starts `dueline` with these arguments in `folder`. `name` names its log and is the last part of its TMPDIR,
    /// which the commands that it runs inherit.
    pub fn dueline(folder: &TestFolder, name: &str, args: &[impl AsRef<OsStr>]) -> Self {
        Self::start(folder, name, dueline(), args)
    }

    /// Starts a program.
    pub fn start(
        folder: &TestFolder,
        name: &str,
        program: &Path,
        args: &[impl AsRef<OsStr>],
    ) -> Self {
        Self::start_with(folder, name, program, args, &[])
    }

    /// Like [`ChildProcess::start`], with further environment variables.
    pub fn start_with(
        folder: &TestFolder,
        name: &str,
        program: &Path,
        args: &[impl AsRef<OsStr>],
        variables: &[(&str, &str)],
    ) -> Self {
        let directory = folder.file(name);
        fs::create_dir_all(&directory).expect("a folder for a process");
        let mut number = 0;
        let (stderr, log) = loop {
            let path = directory.join(format!("{number}.log"));
            match File::create_new(&path) {
                Ok(log) => break (path, log),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => panic!("failed to create {}: {error}", path.display()),
            }
        };
        let inherited = INHERITED_VARIABLES
            .iter()
            .filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let mut child = Command::new(program)
            .args(args)
            .current_dir(folder.path())
            .env_clear()
            .envs(inherited)
            .env("TMPDIR", &directory)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {}: {error}", program.display()));
        let stdout = child.stdout.take().expect("standard output is piped");
        Self {
            name: name.to_owned(),
            child,
            stdout: BufReader::new(stdout).lines(),
            stderr,
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the process runs")
    }

    /// The rest of the first line of standard output that begins with `prefix`; `None` if the process ended before.
    pub async fn line_after(&mut self, prefix: &str) -> Option<String> {
        let find = async {
            while let Ok(Some(line)) = self.stdout.next_line().await {
                if let Some(rest) = line.strip_prefix(prefix) {
                    return Some(rest.to_owned());
                }
            }
            None
        };
        match tokio::time::timeout(START_MAX, find).await {
            Ok(rest) => rest,
            Err(_) => panic!(
                "{} printed no such line within {START_MAX:?}\n{}",
                self.name,
                self.log()
            ),
        }
    }

    /// The last lines of its standard error.
    pub fn log(&self) -> String {
        let text = self.full_log();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Its whole standard error.
    pub fn full_log(&self) -> String {
        fs::read(&self.stderr)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Kills the process with `SIGKILL`, like a crash. The commands that it started continue.
    pub async fn kill(&mut self) {
        // The process may have exited already.
        let _ = self.child.start_kill();
        self.child.wait().await.expect("a child can be waited for");
    }

    /// Sends a signal by its name: `TERM`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(signal(name, &pid), "failed to send SIG{name} to {pid}");
    }

    /// Waits until the process has exited.
    pub async fn exited(&mut self, bound: Duration) -> ExitStatus {
        match tokio::time::timeout(bound, self.child.wait()).await {
            Ok(status) => status.expect("a child can be waited for"),
            Err(_) => panic!("{} did not end within {bound:?}\n{}", self.name, self.log()),
        }
    }
}

/// Sends a signal to a process, or to a process group when `to` begins with `-`. Returns whether it exists.
pub(crate) fn signal(name: &str, to: &str) -> bool {
    std::process::Command::new("sh")
        .args(["-c", "kill -s \"$0\" -- \"$1\" 2> /dev/null", name, to])
        .status()
        .is_ok_and(|sent| sent.success())
}

/// The exit of a command that ran to completion.
#[derive(Debug)]
pub struct ExitedCommand {
    /// The exit code.
    pub code: Option<i32>,
    /// The standard error.
    pub stderr: String,
}

/// Runs `dueline` with these arguments to completion.
pub async fn run_dueline(folder: &TestFolder, args: &[impl AsRef<OsStr>]) -> ExitedCommand {
    let mut process = ChildProcess::dueline(folder, "command", args);
    let code = process.exited(START_MAX).await.code();
    ExitedCommand {
        code,
        stderr: process.full_log(),
    }
}
