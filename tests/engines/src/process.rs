//! One engine's process: how it starts, stops for a while, and ends.

use std::{
    fs::File,
    os::unix::{fs::FileExt as _, process::CommandExt as _},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Last bytes of a log that a failure shows.
const LOG_BYTES_MAX: usize = 4 * 1024;

/// A process that ends with ours: it ends when its standard input closes, and the other end of that is here. Dropped, it
/// is killed.
///
/// It leads a process group of its own, so that `Ctrl-C` meant for the tests does not reach it first, and so that it goes
/// even when it is frozen at the moment at which our process is killed: systems end stopped orphans.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Without a name in the file system: nothing is left behind.
    log: File,
}

impl Process {
    /// Starts it with its output in a log.
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        let log = tempfile::tempfile().map_err(|error| format!("failed to make a log: {error}"))?;
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

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// What it wrote, the last of it when it is long.
    pub(crate) fn log(&self) -> String {
        let length = self.log.metadata().map_or(0, |about| about.len());
        let mut bytes = vec![0; LOG_BYTES_MAX];
        // Read at a place: the process writes wherever the file stands, and that must not move.
        let read = self
            .log
            .read_at(&mut bytes, length.saturating_sub(LOG_BYTES_MAX as u64));
        match read {
            Ok(count) => String::from_utf8_lossy(&bytes[..count]).into_owned(),
            Err(error) => format!("failed to read the log: {error}"),
        }
    }

    /// Stops it where it is. It has stopped when this returns.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        // The signal is on its way; this waits until it has worked, and leaves the end of the process to be waited for.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let waited = waitid(WaitId::Pid(self.id()), stopped);
        assert!(waited.is_ok(), "failed to wait for an engine to stop");
    }

    /// Lets it go on.
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

impl Drop for Process {
    fn drop(&mut self) {
        // It may have gone by itself; a frozen one goes as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
