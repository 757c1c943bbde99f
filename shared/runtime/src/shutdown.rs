//! Shutdown in two stages: first stop taking work, then stop doing it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Tells a service when to stop taking work and when to stop doing it.
///
/// Clones share both stages; a child follows its parent but can be stopped alone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    intake: CancellationToken,
    work: CancellationToken,
}

impl Shutdown {
    /// Nothing is stopped yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops when this stops, or alone.
    pub fn child(&self) -> Self {
        Self {
            intake: self.intake.child_token(),
            work: self.work.child_token(),
        }
    }

    /// First stage: no new work is taken; what runs goes on.
    pub fn stop_intake(&self) {
        self.intake.cancel();
    }

    /// Second stage: whatever still runs is given back at once.
    pub fn stop_work(&self) {
        self.intake.cancel();
        self.work.cancel();
    }

    /// Both stages with `grace` between them, the second one at once when `drained` is ready earlier. Answers whether
    /// it was.
    pub async fn stop_gracefully(
        &self,
        grace: Duration,
        drained: impl Future<Output = ()>,
    ) -> bool {
        self.stop_intake();
        let in_time = tokio::time::timeout(grace, drained).await.is_ok();
        self.stop_work();
        in_time
    }

    /// Whether the first stage has begun.
    pub fn is_intake_stopped(&self) -> bool {
        self.intake.is_cancelled()
    }

    /// Waits for the first stage. Cancel safe.
    pub async fn intake_stopped(&self) {
        self.intake.cancelled().await;
    }

    /// Waits for the second stage. Cancel safe.
    pub async fn work_stopped(&self) {
        self.work.cancelled().await;
    }
}
