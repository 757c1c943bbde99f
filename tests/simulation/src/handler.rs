//! User code that does what the payload says, and tells the history what it did.

use std::time::Duration;

use async_trait::async_trait;
use dueline_domain::RetryClass;
use dueline_executor::{Failure, Handler, HandlerResult, RunningTask, Success};
use dueline_runtime::TaskGroup;
use dueline_testkit::{History, HostGate, Site, What};

use crate::Script;

/// Longer than most leases.
const STALL_MIN: Duration = Duration::from_secs(5);

/// The handler of every job on one host.
pub(crate) struct Scripted {
    pub(crate) host: usize,
    pub(crate) gate: HostGate,
    pub(crate) history: History,
    /// Decides whether the host stands still just before user code, so often in thousandths.
    pub(crate) site: Site,
    pub(crate) stalls: u32,
    pub(crate) group: TaskGroup,
}

#[async_trait]
impl Handler for Scripted {
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        self.stall();
        let entered = Entered(self, Some(task));
        // User code stands still while its host does, like everything else there.
        self.gate.pass().await;
        entered.begins();
        self.history.record(What::RunStarted {
            host: self.host,
            id: task.id(),
            token: task.token(),
            attempt: task.attempt(),
        });
        let text = std::str::from_utf8(task.input()).map_err(Failure::from)?;
        let result = self.play(text.parse().map_err(Failure::fatal)?, task).await;
        self.gate.pass().await;
        self.history.record(What::RunEnded {
            host: self.host,
            id: task.id(),
            token: task.token(),
            success: result.is_ok(),
        });
        result
    }
}

/// A handler that was called and has not come to its first line.
struct Entered<'a>(&'a Scripted, Option<&'a RunningTask>);

impl Entered<'_> {
    fn begins(mut self) {
        self.1 = None;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.1 {
            let (id, token) = (task.id(), task.token());
            self.0.history.record(What::RunStopped { id, token });
        }
    }
}

impl Scripted {
    /// The one moment at which nobody can look at a lease any more.
    fn stall(&self) {
        if self.stalls > 0 && self.site.roll("pause before user code", self.stalls) {
            let lasts = STALL_MIN + self.site.up_to(STALL_MIN);
            let gate = self.gate.clone();
            gate.pause();
            self.group.spawn_infallible("end of a stall", async move {
                tokio::time::sleep(lasts).await;
                gate.resume();
            });
        }
    }

    async fn play(&self, script: Script, task: &RunningTask) -> HandlerResult {
        match script {
            Script::Succeed(0) => {}
            // Some handlers stop when they are told to, and some do not care.
            Script::Succeed(ms) if ms % 2 == 0 => {
                tokio::select! {
                    biased;
                    _ = task.stopped() => return Err(Failure::Cancelled),
                    () = tokio::time::sleep(Duration::from_millis(ms)) => {}
                }
            }
            Script::Succeed(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Script::Fail(times) if task.attempt() < times => {
                return Err(Failure::retriable(RetryClass::Standard, "not yet"));
            }
            Script::Fail(_) => {}
            Script::Fatal => return Err(Failure::fatal("never")),
            // As a panic, but without a message on the screen.
            Script::Panic => std::panic::resume_unwind(Box::new("as told")),
            Script::Poison => {
                self.gate.kill();
                self.gate.pass().await;
            }
        }
        Ok(Success::default())
    }
}
