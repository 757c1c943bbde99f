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
use rustix::{
    io::Errno,
    process::{Pid, Signal},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
};

use crate::{Failure, RunningTask};

/// How much of the error output is kept: its end, where the reason usually is.
const STDERR_BYTES_MAX: usize = 4 * 1024;
/// How long to read from the pipes of an exited child, which its own child processes may keep open.
const PIPES_MAX: Duration = Duration::from_secs(1);

/// A child that has exited.
pub(super) struct ExitedCommand {
    pub(super) status: ExitStatus,
    /// The beginning of the output, at most as much as a result may have.
    pub(super) stdout: Vec<u8>,
    /// Length of the whole output.
    pub(super) stdout_len: usize,
    /// The end of the error output.
    pub(super) stderr: Vec<u8>,
    /// Length of the whole error output.
    pub(super) stderr_len: usize,
    /// Whether the child got a stop signal.
    pub(super) was_stopped: bool,
}

/// Runs the command until it has exited. When the task must stop, the process group gets SIGTERM. When this future is
/// dropped, as happens after the kill grace, the group gets SIGKILL.
pub(super) async fn run(
    config: &ExecConfig,
    env: BTreeMap<String, OsString>,
    input: &[u8],
    task: &RunningTask,
) -> Result<ExitedCommand, Failure> {
    let spawned = task.groups().spawn(|| spawn(config, env));
    // `None` means that the executor is killing all its commands.
    let (mut child, group) = spawned.unwrap_or(Err(Failure::Cancelled))?;
    let mut stdin = child.stdin.take();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut head = OutputHead::new(config.result_max_bytes);
    let mut tail = OutputTail::default();
    let mut was_stopped = false;
    let status = {
        let feed = async {
            if let Some(mut stdin) = stdin.take() {
                // Fails if the child does not read its input, which is allowed.
                let _ = stdin.write_all(input).await;
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
        if was_stopped || status.is_err() {
            // The leader has exited, or it is unknown whether it has; its child processes had the same time to exit.
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
    Ok(ExitedCommand {
        status,
        stdout: head.kept,
        stdout_len: head.len,
        stderr_len: tail.len,
        stderr: tail.kept.into(),
        was_stopped,
    })
}

/// Starts the command. Returns the child and the id of its process group.
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
            ExecInput::Stdin | ExecInput::Results => Stdio::piped(),
            ExecInput::None => Stdio::null(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(cwd) = &config.cwd {
        command.current_dir(cwd);
    }
    let child = command.spawn().map_err(|error| {
        let text = spawn_error(config, &error);
        if is_host_fault(&error) {
            return Failure::Host { error: text };
        }
        match error.kind() {
            ErrorKind::Other => Failure::retriable(RetryClass::Quick, text),
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

/// Whether the host is short of descriptors, processes, memory or disk, which has nothing to do with the command.
fn is_host_fault(error: &std::io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::NOSPC | Errno::DQUOT
        )
    )
}

/// Why the child could not be started. The system's error does not say whether the program or the folder is wrong.
fn spawn_error(config: &ExecConfig, error: &std::io::Error) -> String {
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

/// Reads a pipe to its end, so that the child never blocks on a full pipe.
async fn drain<R: AsyncRead + Unpin>(pipe: Option<R>, mut push: impl FnMut(&[u8])) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(len @ 1..) = pipe.read(&mut buffer).await {
        push(&buffer[..len]);
    }
}

/// The first bytes of an output, and its length.
struct OutputHead {
    kept: Vec<u8>,
    len: usize,
    max: usize,
}

impl OutputHead {
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

/// The last bytes of an output, and its length.
#[derive(Default)]
struct OutputTail {
    kept: VecDeque<u8>,
    len: usize,
}

impl OutputTail {
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
    fn a_shortage_of_the_host_is_told_from_a_command_that_cannot_run() {
        let error_of = |errno: Errno| std::io::Error::from(errno);
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::AGAIN,
            Errno::NOSPC,
        ] {
            assert!(is_host_fault(&error_of(errno)), "{errno:?}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::TOOBIG, Errno::NOEXEC] {
            assert!(!is_host_fault(&error_of(errno)), "{errno:?}");
        }
    }

    #[test]
    fn the_head_keeps_the_first_and_the_tail_the_last_bytes() {
        let mut head = OutputHead::new(5);
        let mut tail = OutputTail::default();
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
