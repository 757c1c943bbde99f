//! The process of an engine: starts, stops, continues and kills it.

use std::{
    fs::File,
    os::unix::{fs::FileExt as _, process::CommandExt as _},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Most bytes of the log in a failure message.
const LOG_BYTES_MAX: usize = 4 * 1024;

/// A process that ends with this one: it ends when its standard input closes, whose other end is in this process. It is
/// killed when dropped.
///
/// The process leads its own process group, so that `Ctrl-C` for the tests does not reach it first. A frozen process
/// ends, too, when this process is killed, because systems end stopped orphaned process groups.
#[derive(Debug)]
pub(crate) struct EngineProcess {
    child: Child,
    /// An unnamed file, so that no file is left behind.
    log: File,
}

impl EngineProcess {
    /// Starts a process with its output in a log.
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        let log =
            tempfile::tempfile().map_err(|error| format!("failed to create a log: {error}"))?;
        let copy = || {
            log.try_clone()
                .map_err(|error| format!("failed to share a log: {error}"))
        };
        command
            .stdin(Stdio::piped())
            .stdout(copy()?)
            .stderr(copy()?)
            .process_group(0);
        let child = command
            .spawn()
            .map_err(|error| format!("failed to start {command:?}: {error}"))?;
        Ok(Self { child, log })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of the log.
    pub(crate) fn log(&self) -> String {
        let length = self.log.metadata().map_or(0, |about| about.len());
        let mut bytes = vec![0; LOG_BYTES_MAX];
        // Reads at an explicit offset, because the process shares the file position and it must not move.
        let read = self
            .log
            .read_at(&mut bytes, length.saturating_sub(LOG_BYTES_MAX as u64));
        match read {
            Ok(count) => String::from_utf8_lossy(&bytes[..count]).into_owned(),
            Err(error) => format!("failed to read the log: {error}"),
        }
    }

    /// Stops the process. It has stopped when this returns.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        // Waits until the signal has taken effect, without reaping the process if it has ended.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let waited = waitid(WaitId::Pid(self.id()), stopped);
        assert!(waited.is_ok(), "failed to wait for an engine to stop");
    }

    /// Continues the process.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal)
            .unwrap_or_else(|error| panic!("failed to signal an engine: {error}"));
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        // The process may have ended already. A frozen process is killed, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
