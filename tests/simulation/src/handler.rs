//! User code that does what the payload says, and tells the history what it did.

use std::time::Duration;

use async_trait::async_trait;
use dueline_domain::RetryClass;
use dueline_executor::{Failure, Handler, HandlerResult, RunningTask, Success};
use dueline_testkit::{History, HostGate, What};

use crate::Script;

/// The handler of every job on one host.
pub(crate) struct Scripted {
    pub(crate) host: usize,
    pub(crate) gate: HostGate,
    pub(crate) history: History,
}

#[async_trait]
impl Handler for Scripted {
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        // User code stands still while its host does, like everything else there.
        self.gate.pass().await;
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

impl Scripted {
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
