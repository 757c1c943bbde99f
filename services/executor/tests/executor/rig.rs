//! An executor at work for a scripted controller.

use std::sync::Arc;

use dueline_domain::Timestamp;
use dueline_executor::{Config, Deps, Executor, Registry};
use dueline_ports::Clock;
use dueline_runtime::{ServiceError, Shutdown, SystemRng, TaskGroup};
use tokio::time::Instant;

use crate::fake::FakeWork;

/// Wall-clock time that follows the clock of the test.
struct TestClock(Instant);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::clamped(1_000_000).after(self.0.elapsed())
    }
}

/// An executor that does not run yet.
pub(crate) fn executor(
    change: impl FnOnce(&mut Config),
    registry: Registry,
    work: Arc<FakeWork>,
) -> Arc<Executor> {
    let mut config = Config::new("worker", 7);
    change(&mut config);
    let deps = Deps {
        work,
        clock: Arc::new(TestClock(Instant::now())),
        rng: Arc::new(SystemRng),
        registry,
    };
    Executor::new(config, deps).unwrap()
}

/// An executor at work.
pub(crate) struct Rig {
    pub(crate) work: Arc<FakeWork>,
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
        prepare: impl FnOnce(&FakeWork),
    ) -> Self {
        let work = FakeWork::new();
        prepare(&work);
        let executor = executor(change, registry, work.clone());
        let (shutdown, tasks) = (Shutdown::new(), TaskGroup::new());
        let running = dueline_executor::run(executor.clone(), shutdown.clone());
        tasks.spawn("executor", running);
        Self {
            work,
            executor,
            shutdown,
            tasks,
        }
    }

    /// Waits until the executor has ended by itself.
    pub(crate) async fn ended(self) -> Result<(), ServiceError> {
        self.tasks.wait().await
    }

    /// Lets what runs end.
    pub(crate) async fn drain(self) {
        self.shutdown.stop_intake();
        self.ended().await.unwrap();
    }

    /// Stops what runs.
    pub(crate) async fn stop(self) {
        self.shutdown.stop_work();
        self.ended().await.unwrap();
    }
}
