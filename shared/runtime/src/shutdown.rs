//! Shutdown in two stages: first the intake of work stops, then the work itself.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Signals the two stages of a shutdown to a service.
///
/// Clones share both stages. A child is stopped with its parent, and can be stopped alone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    intake: CancellationToken,
    work: CancellationToken,
}

impl Shutdown {
    /// A shutdown of which no stage has begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// A shutdown that is stopped with this one, or alone.
    pub fn child(&self) -> Self {
        Self {
            intake: self.intake.child_token(),
            work: self.work.child_token(),
        }
    }

    /// Begins the first stage: services accept no new work and continue the work that they have.
    pub fn stop_intake(&self) {
        self.intake.cancel();
    }

    /// Begins the second stage: services abandon their remaining work.
    pub fn stop_work(&self) {
        self.intake.cancel();
        self.work.cancel();
    }

    /// Begins the first stage, and the second one when `drained` is ready or `grace` has passed. Returns whether
    /// `drained` was ready in time.
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
