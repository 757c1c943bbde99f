//! One process, and how it ends.

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

use crate::{Place, dueline};

/// A start takes a fraction of a second; a busy machine may need much more.
const START_MAX: Duration = Duration::from_secs(30);
/// Variables that processes get of ours. All else, `DUELINE_*` and proxies above all, stays here.
const KEPT_VARIABLES: [&str; 3] = ["PATH", "HOME", "LANG"];
/// Lines of a log that a failure shows.
const TAIL_LINES: usize = 40;

/// A process that is killed when it is dropped.
pub struct Process {
    name: String,
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: PathBuf,
}

impl Process {
    /// Starts `dueline` with these arguments in `place`. `name` is the last part of its TMPDIR, which commands that it
    /// runs get to see, and names its log.
    pub fn dueline(place: &Place, name: &str, args: &[impl AsRef<OsStr>]) -> Self {
        Self::start(place, name, dueline(), args)
    }

    /// Starts a program.
    pub fn start(place: &Place, name: &str, program: &Path, args: &[impl AsRef<OsStr>]) -> Self {
        Self::start_with(place, name, program, args, &[])
    }

    /// As [`Process::start`], with variables of its own.
    pub fn start_with(
        place: &Place,
        name: &str,
        program: &Path,
        args: &[impl AsRef<OsStr>],
        variables: &[(&str, &str)],
    ) -> Self {
        let own = place.file(name);
        fs::create_dir_all(&own).expect("a folder for a process");
        let mut number = 0;
        let (stderr, log) = loop {
            let path = own.join(format!("{number}.log"));
            match File::create_new(&path) {
                Ok(log) => break (path, log),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => panic!("failed to make {}: {error}", path.display()),
            }
        };
        let kept = KEPT_VARIABLES
            .iter()
            .filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let mut child = Command::new(program)
            .args(args)
            .current_dir(place.path())
            .env_clear()
            .envs(kept)
            .env("TMPDIR", &own)
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

    /// The rest of the first line of its output that begins with `start`; `None` when it ended without one.
    pub async fn told(&mut self, start: &str) -> Option<String> {
        let find = async {
            while let Ok(Some(line)) = self.stdout.next_line().await {
                if let Some(rest) = line.strip_prefix(start) {
                    return Some(rest.to_owned());
                }
            }
            None
        };
        match tokio::time::timeout(START_MAX, find).await {
            Ok(rest) => rest,
            Err(_) => panic!(
                "{} said nothing for {START_MAX:?}\n{}",
                self.name,
                self.log()
            ),
        }
    }

    /// What it wrote to its standard error, the last lines of it.
    pub fn log(&self) -> String {
        let text = self.full_log();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// All that it wrote to its standard error.
    pub fn full_log(&self) -> String {
        fs::read(&self.stderr)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Ends it at once, as a crash would: `SIGKILL`, and nothing after it runs. The commands that it had started live on.
    pub async fn kill(&mut self) {
        // It may have gone by itself.
        let _ = self.child.start_kill();
        self.child.wait().await.expect("a child can be waited for");
    }

    /// Sends a signal by its name: `TERM`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(signal(name, &pid), "failed to send SIG{name} to {pid}");
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self, bound: Duration) -> ExitStatus {
        match tokio::time::timeout(bound, self.child.wait()).await {
            Ok(status) => status.expect("a child can be waited for"),
            Err(_) => panic!("{} did not end within {bound:?}\n{}", self.name, self.log()),
        }
    }
}

/// Sends a signal to a process, or to a group of them when `to` begins with `-`; whether there was one.
pub(crate) fn signal(name: &str, to: &str) -> bool {
    std::process::Command::new("sh")
        .args(["-c", "kill -s \"$0\" -- \"$1\" 2> /dev/null", name, to])
        .status()
        .is_ok_and(|sent| sent.success())
}

/// How a command that ends by itself ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code.
    pub code: Option<i32>,
    /// Standard error.
    pub stderr: String,
}

/// Runs `dueline` with these arguments to its end.
pub async fn ended(place: &Place, args: &[impl AsRef<OsStr>]) -> Ended {
    let mut process = Process::dueline(place, "command", args);
    let code = process.ended(START_MAX).await.code();
    Ended {
        code,
        stderr: process.full_log(),
    }
}
