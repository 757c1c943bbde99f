//! Waits for conditions rather than for a fixed time.

use std::time::{Duration, Instant};

/// The time limit, far longer than any condition here takes.
const BOUND: Duration = Duration::from_secs(20);

/// Polls until the condition holds.
#[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < BOUND, "waited {BOUND:?} until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process with this id exists.
pub(crate) fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Whether a process listens at an address on loopback.
pub(crate) fn listens(url: &str) -> bool {
    let authority = url.strip_prefix("http://").expect("plain http");
    std::net::TcpStream::connect(authority).is_ok()
}
