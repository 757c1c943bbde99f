//! A controller on a local queue and a fake status controller, under paused time.
#![allow(
    dead_code,
    reason = "each test file that includes the kit uses another part of it"
)]

mod fake_status;

use std::{sync::Arc, time::Duration};

use dueline_api::{ApiError, Assignment, Controller as _, PollRequest};
use dueline_controller::{Config, ControllerService, Deps};
use dueline_domain::{JobName, Priority, TaskRef, Weight, WorkerId};
use dueline_ports::{Depth, TaskQueue as _, conformance::queue::message};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use dueline_runtime::{Shutdown, TaskGroup};
pub(crate) use fake_status::FakeStatus;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

pub(crate) struct Kit {
    pub(crate) queue: Arc<LocalQueue>,
    pub(crate) status: Arc<FakeStatus>,
    pub(crate) jobs_changed: Arc<Notify>,
    pub(crate) controller: Arc<ControllerService>,
    pub(crate) shutdown: Shutdown,
    group: TaskGroup,
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn name(job: &str) -> JobName {
    JobName::parse(job).unwrap()
}

pub(crate) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name, 1).unwrap()
}

/// A poll for job `a` with much free weight.
pub(crate) fn request() -> PollRequest {
    PollRequest {
        worker: worker("w"),
        jobs: vec![name("a")],
        handlers: Vec::new(),
        tasks_max: 100,
        weight_max: 100,
        task_weight_max: 100,
        wait: secs(60),
        start: false,
    }
}

pub(crate) fn ranked(job: &str, n: u64, priority: i64) -> TaskRef {
    TaskRef {
        priority: Priority::new(priority).unwrap(),
        ..message(&name(job), n)
    }
}

pub(crate) fn weighing(job: &str, n: u64, weight: i64) -> TaskRef {
    TaskRef {
        weight: Weight::new(weight).unwrap(),
        ..message(&name(job), n)
    }
}

/// The numbers of tasks whose messages were made by `message`.
pub(crate) fn numbers(assignments: &[Assignment]) -> Vec<u64> {
    assignments.iter().map(|a| a.token.get() - 1).collect()
}

impl Kit {
    /// A running controller. Jobs `a` and `b` have handlers of workers, `shell` has the built-in kind `exec`.
    pub(crate) async fn new() -> Self {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let queue = LocalQueue::new(LocalQueueConfig::default());
        let jobs = [("a", "worker"), ("b", "worker"), ("shell", "exec")];
        let status = Arc::new(FakeStatus::new(queue.clone(), &jobs));
        for (job, _) in jobs {
            queue.ensure(&name(job)).await.unwrap();
        }
        let jobs_changed = Arc::new(Notify::new());
        let deps = Deps {
            queue: queue.clone(),
            status: status.clone(),
            jobs_changed: jobs_changed.clone(),
        };
        let (controller, shutdown) = (ControllerService::new(config, deps), Shutdown::new());
        let group = TaskGroup::new();
        group.spawn("controller", {
            dueline_controller::run(controller.clone(), shutdown.clone())
        });
        Self {
            queue,
            status,
            jobs_changed,
            controller,
            shutdown,
            group,
        }
    }

    /// A controller of another host on the same queues; its status controller is never down.
    pub(crate) fn second_controller(&self) -> (Arc<ControllerService>, TaskGroup) {
        let deps = Deps {
            queue: self.queue.clone(),
            status: Arc::new(FakeStatus::new(self.queue.clone(), &[("a", "worker")])),
            jobs_changed: Arc::default(),
        };
        let (controller, group) = (
            ControllerService::new(Config::default(), deps),
            TaskGroup::new(),
        );
        group.spawn("second controller", {
            dueline_controller::run(controller.clone(), self.shutdown.clone())
        });
        (controller, group)
    }

    pub(crate) async fn stop(self) {
        self.shutdown.stop_intake();
        self.group.wait().await.unwrap();
    }

    pub(crate) async fn ended(&self) {
        self.group.wait().await.unwrap();
    }

    pub(crate) async fn send(&self, messages: Vec<TaskRef>) {
        for result in self.queue.send(messages).await {
            result.unwrap();
        }
    }

    pub(crate) async fn depth(&self, job: &str) -> Depth {
        self.queue.depth(&name(job)).await.unwrap()
    }

    pub(crate) async fn poll(&self, request: PollRequest) -> Result<Vec<Assignment>, ApiError> {
        self.controller.poll(request).await
    }

    /// Makes the controller serve the jobs of `request` while there is no work yet.
    pub(crate) async fn subscribe(&self, request: PollRequest) {
        let wait = Duration::ZERO;
        assert_eq!(self.poll(PollRequest { wait, ..request }).await, Ok(vec![]));
    }

    /// Waits until so many messages are in the buffer.
    pub(crate) async fn until_buffered(&self, count: usize) {
        self.until(|| self.controller.buffered() == count).await;
    }

    pub(crate) async fn until(&self, holds: impl Fn() -> bool) {
        let ends_at = Instant::now() + secs(60);
        while !holds() {
            let buffered = self.controller.buffered();
            assert!(
                Instant::now() < ends_at,
                "{buffered} messages are in the buffer"
            );
            sleep(ms(1)).await;
        }
    }
}
