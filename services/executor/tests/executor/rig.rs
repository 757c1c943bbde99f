//! An executor that runs against a scripted controller.

use std::sync::Arc;

use dueline_domain::Timestamp;
use dueline_executor::{Config, Deps, Executor, Registry};
use dueline_ports::Clock;
use dueline_runtime::{ServiceError, Shutdown, SystemRng, TaskGroup};
use tokio::time::Instant;

use crate::fake::FakeController;

/// Wall-clock time that follows the test's monotonic clock.
struct TestClock(Instant);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::clamped(1_000_000).after(self.0.elapsed())
    }
}

/// An executor that is not running yet.
pub(crate) fn executor(
    change: impl FnOnce(&mut Config),
    registry: Registry,
    controller: Arc<FakeController>,
) -> Arc<Executor> {
    let mut config = Config::new("worker", 7);
    change(&mut config);
    let deps = Deps {
        controller,
        clock: Arc::new(TestClock(Instant::now())),
        rng: Arc::new(SystemRng),
        registry,
    };
    Executor::new(config, deps).unwrap()
}

/// A running executor.
pub(crate) struct Rig {
    pub(crate) controller: Arc<FakeController>,
    pub(crate) executor: Arc<Executor>,
    pub(crate) shutdown: Shutdown,
    tasks: TaskGroup,
}

impl Rig {
    pub(crate) fn start(registry: Registry) -> Self {
        Self::with(|_| {}, registry)
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config), registry: Registry) -> Self {
        Self::prepared(change, registry, |_| {})
    }

    /// With a controller that is prepared before the executor first calls it.
    pub(crate) fn prepared(
        change: impl FnOnce(&mut Config),
        registry: Registry,
        prepare: impl FnOnce(&FakeController),
    ) -> Self {
        let controller = FakeController::new();
        prepare(&controller);
        let executor = executor(change, registry, controller.clone());
        let (shutdown, tasks) = (Shutdown::new(), TaskGroup::new());
        let running = dueline_executor::run(executor.clone(), shutdown.clone());
        tasks.spawn("executor", running);
        Self {
            controller,
            executor,
            shutdown,
            tasks,
        }
    }

    /// Waits until the executor has ended.
    pub(crate) async fn ended(self) -> Result<(), ServiceError> {
        self.tasks.wait().await
    }

    /// Stops intake and waits until all runs have ended.
    pub(crate) async fn drain(self) {
        self.shutdown.stop_intake();
        self.ended().await.unwrap();
    }

    /// Stops all runs.
    pub(crate) async fn stop(self) {
        self.shutdown.stop_work();
        self.ended().await.unwrap();
    }
}
