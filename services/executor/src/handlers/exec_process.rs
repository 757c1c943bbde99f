//! A child process in a group of its own, and its pipes.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    io::ErrorKind,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use dueline_api::v1::{ExecConfig, ExecInput};
use dueline_domain::RetryClass;
use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
};

use crate::{Failure, RunningTask};

/// Most of the error output that is kept: its end, where the reason usually is.
const STDERR_BYTES_MAX: usize = 4 * 1024;
/// How long the pipes of a child that has exited may stay open, held by processes it left behind.
const PIPES_MAX: Duration = Duration::from_secs(1);

/// A child that has exited.
pub(super) struct Exited {
    pub(super) status: ExitStatus,
    /// The beginning of its output, as much as may become a result.
    pub(super) stdout: Vec<u8>,
    /// How much output there was.
    pub(super) stdout_len: usize,
    /// The end of its error output.
    pub(super) stderr: Vec<u8>,
    /// How much error output there was.
    pub(super) stderr_len: usize,
    /// Whether it had been told to stop.
    pub(super) was_stopped: bool,
}

/// Runs the command until it has exited. When the task must stop, the group gets SIGTERM; when this future is
/// dropped, which is what happens after the kill grace, SIGKILL.
pub(super) async fn run(
    config: &ExecConfig,
    env: BTreeMap<String, OsString>,
    task: &RunningTask,
) -> Result<Exited, Failure> {
    let spawned = task.groups().spawn(|| spawn(config, env));
    // All commands are being killed, so the executor is going.
    let (mut child, group) = spawned.unwrap_or(Err(Failure::Cancelled))?;
    let mut stdin = child.stdin.take();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut head = Head::new(config.result_max_bytes);
    let mut tail = Tail::default();
    let mut was_stopped = false;
    let status = {
        let feed = async {
            if let Some(mut stdin) = stdin.take() {
                // A child that does not read its input is within its rights.
                let _ = stdin.write_all(task.input()).await;
            }
        };
        let pipes = async {
            tokio::join!(
                feed,
                drain(stdout, |bytes| head.push(bytes)),
                drain(stderr, |bytes| tail.push(bytes)),
            )
        };
        let mut pipes = std::pin::pin!(pipes);
        let mut are_closed = false;
        let status = loop {
            tokio::select! {
                biased;
                status = child.wait() => break status,
                _ = &mut pipes, if !are_closed => are_closed = true,
                _ = task.stopped(), if !was_stopped => {
                    was_stopped = true;
                    group.signal(Signal::TERM);
                }
            }
        };
        if was_stopped {
            // The leader has gone; what it started has had the same time to go.
            group.signal(Signal::KILL);
        }
        group.forget();
        if !are_closed {
            let _ = tokio::time::timeout(PIPES_MAX, pipes).await;
        }
        status
    };
    let status = status.map_err(|error| {
        let error = format!("failed to wait for the command: {error}");
        Failure::retriable(RetryClass::Quick, error)
    })?;
    Ok(Exited {
        status,
        stdout: head.kept,
        stdout_len: head.len,
        stderr_len: tail.len,
        stderr: tail.kept.into(),
        was_stopped,
    })
}

/// The child, and the id of its process group.
fn spawn(
    config: &ExecConfig,
    env: BTreeMap<String, OsString>,
) -> Result<(Child, Option<Pid>), Failure> {
    let mut command = Command::new(&config.command[0]);
    command
        .args(&config.command[1..])
        .env_clear()
        .envs(env)
        .process_group(0)
        .stdin(match config.input {
            ExecInput::Stdin => Stdio::piped(),
            ExecInput::None => Stdio::null(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(cwd) = &config.cwd {
        command.current_dir(cwd);
    }
    let child = command.spawn().map_err(|error| {
        let text = not_run(config, &error);
        match error.kind() {
            // The host is short of processes, memory or files; that passes.
            ErrorKind::WouldBlock | ErrorKind::OutOfMemory | ErrorKind::Other => {
                Failure::retriable(RetryClass::Quick, text)
            }
            ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidInput
            | ErrorKind::ArgumentListTooLong => Failure::fatal(text),
            _ => Failure::retriable(RetryClass::Standard, text),
        }
    })?;
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    Ok((child, id.and_then(Pid::from_raw)))
}

/// Why there is no child. The error of the system does not say whether it means the program or the folder.
fn not_run(config: &ExecConfig, error: &std::io::Error) -> String {
    let program = &config.command[0];
    let Some(folder) = &config.cwd else {
        return format!("failed to run '{program}': {error}");
    };
    match std::fs::metadata(folder) {
        Err(why) => format!("failed to use the folder '{folder}' to run '{program}': {why}"),
        Ok(metadata) if !metadata.is_dir() => {
            let why = ErrorKind::NotADirectory;
            format!("failed to use the folder '{folder}' to run '{program}': {why}")
        }
        Ok(_) => format!("failed to run '{program}' in '{folder}': {error}"),
    }
}

/// Reads to the end whatever becomes of it, so that the child never waits for us.
async fn drain<R: AsyncRead + Unpin>(pipe: Option<R>, mut push: impl FnMut(&[u8])) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(len @ 1..) = pipe.read(&mut buffer).await {
        push(&buffer[..len]);
    }
}

/// The first bytes, and how many there were.
struct Head {
    kept: Vec<u8>,
    len: usize,
    max: usize,
}

impl Head {
    fn new(max: usize) -> Self {
        let (kept, len) = (Vec::new(), 0);
        Self { kept, len, max }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.max - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.len += bytes.len();
    }
}

/// The last bytes, and how many there were.
#[derive(Default)]
struct Tail {
    kept: VecDeque<u8>,
    len: usize,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        self.kept.extend(bytes);
        let excess = self.kept.len().saturating_sub(STDERR_BYTES_MAX);
        self.kept.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_keeps_the_first_and_the_tail_the_last_bytes() {
        let mut head = Head::new(5);
        let mut tail = Tail::default();
        for chunk in [&b"abc"[..], b"defg", &[b'z'; STDERR_BYTES_MAX]] {
            head.push(chunk);
            tail.push(chunk);
        }
        assert_eq!(head.kept, b"abcde");
        assert_eq!(head.len, 7 + STDERR_BYTES_MAX);
        assert_eq!(tail.len, head.len);
        assert_eq!(Vec::from(tail.kept), [b'z'; STDERR_BYTES_MAX]);
    }
}
