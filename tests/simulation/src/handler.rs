//! User code that follows the script in its payload and records its runs in the history.

use std::time::Duration;

use async_trait::async_trait;
use dueline_domain::RetryClass;
use dueline_executor::{Failure, Handler, HandlerResult, RunningTask, Success};
use dueline_runtime::TaskGroup;
use dueline_testkit::{EventHistory, FaultInjector, HistoryEvent, HostGate};

use crate::{TaskScript, families::Stager};

/// Shortest stall; longer than most leases.
const STALL_MIN: Duration = Duration::from_secs(5);

/// The handler of every job on one host.
pub(crate) struct ScriptedHandler {
    pub(crate) host: usize,
    pub(crate) gate: HostGate,
    pub(crate) history: EventHistory,
    /// Decides whether the host stalls just before user code.
    pub(crate) injector: FaultInjector,
    /// How often the host stalls, in thousandths.
    pub(crate) stalls: u32,
    pub(crate) group: TaskGroup,
    /// Submits tasks from inside runs, in worlds with families.
    pub(crate) stager: Option<Stager>,
}

#[async_trait]
impl Handler for ScriptedHandler {
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        self.stall();
        let pending = PendingRunGuard(self, Some(task));
        // User code is paused together with its host.
        self.gate.wait_until_running().await;
        pending.disarm();
        self.history.record(HistoryEvent::RunStarted {
            host: self.host,
            id: task.id(),
            token: task.token(),
            attempt: task.attempt(),
        });
        let text = std::str::from_utf8(task.input()).map_err(Failure::from)?;
        let result = self.play(text.parse().map_err(Failure::fatal)?, task).await;
        self.gate.wait_until_running().await;
        self.history.record(HistoryEvent::RunEnded {
            host: self.host,
            id: task.id(),
            token: task.token(),
            success: result.is_ok(),
        });
        result
    }
}

/// Records a stopped run when a handler is dropped between its call and its first line.
struct PendingRunGuard<'a>(&'a ScriptedHandler, Option<&'a RunningTask>);

impl PendingRunGuard<'_> {
    fn disarm(mut self) {
        self.1 = None;
    }
}

impl Drop for PendingRunGuard<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.1 {
            let (id, token) = (task.id(), task.token());
            self.0
                .history
                .record(HistoryEvent::RunStopped { id, token });
        }
    }
}

impl ScriptedHandler {
    /// May pause the host between the last check of the lease and the first line of user code.
    fn stall(&self) {
        if self.stalls > 0 && self.injector.roll("pause before user code", self.stalls) {
            let lasts = STALL_MIN + self.injector.random_duration(STALL_MIN);
            let gate = self.gate.clone();
            gate.pause();
            self.group.spawn_infallible("end of a stall", async move {
                tokio::time::sleep(lasts).await;
                gate.resume();
            });
        }
    }

    async fn play(&self, script: TaskScript, task: &RunningTask) -> HandlerResult {
        match script {
            TaskScript::Succeed(0) => {}
            // An even number stands for a handler that stops on request, an odd one for a handler that does not.
            TaskScript::Succeed(ms) if ms % 2 == 0 => {
                tokio::select! {
                    biased;
                    _ = task.stopped() => return Err(Failure::Cancelled),
                    () = tokio::time::sleep(Duration::from_millis(ms)) => {}
                }
            }
            TaskScript::Succeed(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            TaskScript::Fail(times) if task.attempt() < times => {
                return Err(Failure::retriable(RetryClass::Standard, "not yet"));
            }
            TaskScript::Fail(_) => {}
            TaskScript::Fatal => return Err(Failure::fatal("never")),
            // Unwinds like a panic, but prints no message.
            TaskScript::Panic => std::panic::resume_unwind(Box::new("scripted panic")),
            TaskScript::Stage(times) => {
                if let Some(stager) = &self.stager {
                    let staged = stager.stage(task).await;
                    staged.map_err(|error| {
                        Failure::retriable(RetryClass::Standard, error.to_string())
                    })?;
                }
                if task.attempt() < times {
                    return Err(Failure::retriable(RetryClass::Standard, "not yet"));
                }
            }
            TaskScript::Poison => {
                self.gate.kill();
                self.gate.wait_until_running().await;
            }
        }
        Ok(Success::default())
    }
}
