//! Claim and start as one write, and the number of writes that a task costs.

use std::{sync::Arc, time::Duration};

use dueline_api::{Action, StatusController as _};
use dueline_controller::{self as controller, ControllerService};
use dueline_domain::{Event, Policy, RetryPolicy, RunEnd, RunningCancel, StateKind, TaskId, Verb};
use dueline_executor::{self as executor, Executor, Registry, RunningTask, handler_fn};
use dueline_ports::TaskQueue as _;
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use dueline_runtime::{Shutdown, TaskGroup};
use tokio::time::{Instant, advance};

use crate::{
    bench::{Bench, mail, registration, retriable},
    counting::CountingStore,
};

const MS: Duration = Duration::from_millis(1);

fn with_retries(retries_max: u32) -> Policy {
    Policy {
        retry: RetryPolicy {
            retries_max: Some(retries_max),
            ..RetryPolicy::default()
        },
        ..Policy::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_registration_returns_whether_claims_start_runs() {
    let plain = Bench::new().await;
    let registered = plain
        .controller
        .register_worker(registration("w", false))
        .await;
    assert!(!registered.unwrap().claims_start);
    let (expensive, _) = Bench::expensive().await;
    let registered = expensive
        .controller
        .register_worker(registration("w", false))
        .await;
    assert!(registered.unwrap().claims_start);
}

#[tokio::test(start_paused = true)]
async fn attempts_and_tries_are_right_over_two_failures() {
    let (bench, store) = Bench::expensive().await;
    bench.put_job(with_retries(2)).await;
    let mut message = bench.submit(bench.new_task()).await;
    for attempt in 0..3 {
        advance(MS * 10).await;
        let run = bench.claim_and_start(&message).await;
        assert_eq!((run.attempt, run.started), (attempt, true));
        assert_eq!(run.started_before, attempt > 0);
        assert!(!run.start_first, "the start is durable already");
        let task = bench.task(run.id).await;
        assert_eq!(
            (task.kind(), task.tries),
            (StateKind::Processing, attempt + 1)
        );
        assert_eq!(task.started_at, Some(run.claimed_at));
        let refused = bench.report(&run, Action::Start).await.unwrap_err();
        assert_eq!(refused.reason().name(), "already_started");
        advance(MS * 10).await;
        let ack = bench.report(&run, retriable()).await.unwrap();
        if attempt == 2 {
            assert_eq!(ack.state, StateKind::Failed);
            break;
        }
        assert_eq!(ack.state, StateKind::Retriable);
        advance(Duration::from_secs(7)).await;
        message = bench.trigger(run.id).await.message().unwrap();
    }
    let task = bench.task(message.id).await;
    let history: Vec<_> = task
        .history
        .unwrap()
        .runs
        .iter()
        .map(|run| run.attempt)
        .collect();
    assert_eq!((history, task.tries, task.losses), (vec![0, 1, 2], 3, 0));
    store.commands();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_allows_no_retry_is_claimed_without_a_start() {
    let (bench, store) = Bench::expensive().await;
    bench.put_job(with_retries(0)).await;
    let message = bench.submit(bench.new_task()).await;
    let run = bench.claim_and_start(&message).await;
    assert_eq!(
        (run.attempt, run.started, run.start_first),
        (0, false, true)
    );
    // The worker dies before the start: the task has not run, and no try is used.
    advance(Policy::default().claim_timeout).await;
    let task = bench.trigger(run.id).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Enqueued, 0));
    assert_eq!(store.commands(), [Verb::Claim]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_with_started_claims_uses_a_try_of_each() {
    let (bench, _) = Bench::expensive().await;
    bench.put_job(with_retries(1)).await;
    let message = bench.submit(bench.new_task()).await;
    let run = bench.claim_and_start(&message).await;
    advance(Policy::default().heartbeat_timeout).await;
    let task = bench.trigger(run.id).await;
    assert_eq!(
        (task.kind(), task.tries, task.losses),
        (StateKind::Enqueued, 1, 0)
    );
    assert_eq!(task.history.as_ref().unwrap().runs[0].end, RunEnd::Lost);
    let run = bench.claim_and_start(&task.message().unwrap()).await;
    assert_eq!((run.attempt, run.started_before), (1, true));
    advance(Policy::default().heartbeat_timeout).await;
    assert_eq!(bench.trigger(run.id).await.kind(), StateKind::Failed);
}

#[tokio::test(start_paused = true)]
async fn f_075_an_abandoned_started_claim_uses_no_try() {
    let (bench, _) = Bench::expensive().await;
    bench.put_job(with_retries(1)).await;
    let mut message = bench.submit(bench.new_task()).await;
    for attempt in 0..5 {
        let run = bench.claim_and_start(&message).await;
        assert_eq!((run.attempt, run.started), (attempt, true));
        bench.report(&run, Action::Abandon).await.unwrap();
        let task = bench.task(run.id).await;
        assert_eq!(
            (task.kind(), task.tries, task.losses),
            (StateKind::Enqueued, 0, 0)
        );
        message = bench.sent().remove(0);
    }
}

/// A status controller with expensive writes, and one host with a controller and an executor.
struct Host {
    bench: Bench,
    store: Arc<CountingStore>,
    queue: Arc<LocalQueue>,
    shutdown: Shutdown,
    group: TaskGroup,
}

impl Host {
    async fn new<F, Fut>(run: F) -> Self
    where
        F: Fn(RunningTask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = executor::HandlerResult> + Send,
    {
        let (bench, store) = Bench::expensive().await;
        let queue = LocalQueue::new(LocalQueueConfig::default());
        queue.ensure(&mail()).await.unwrap();
        let deps = controller::Deps {
            queue: queue.clone(),
            status: bench.controller.clone(),
            jobs_changed: Arc::default(),
        };
        let service = ControllerService::new(controller::Config::default(), deps);
        let (shutdown, group) = (Shutdown::new(), TaskGroup::new());
        let registry = Registry::builder().job("mail", handler_fn(run));
        let deps = executor::Deps {
            controller: service.clone(),
            clock: bench.clock.clone(),
            rng: bench.rng.clone(),
            registry: registry.build().unwrap(),
        };
        let executor = Executor::new(executor::Config::new("w", 1), deps).unwrap();
        let stop_controller = Shutdown::new();
        group.spawn("controller", {
            controller::run(service, stop_controller.clone())
        });
        group.spawn("executor", {
            let shutdown = shutdown.clone();
            async move {
                let ended = executor::run(executor, shutdown).await;
                stop_controller.stop_work();
                ended
            }
        });
        tokio::time::sleep(MS * 500).await;
        Self {
            bench,
            store,
            queue,
            shutdown,
            group,
        }
    }

    /// Stores tasks with one call each, and sends their messages.
    async fn submit(&self, count: usize) -> Vec<TaskId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            let message = self.bench.submit(self.bench.new_task()).await;
            ids.push(message.id);
            self.queue.send(vec![message]).await;
        }
        ids
    }

    async fn until_final(&self, id: TaskId) -> dueline_domain::Task {
        let too_late = Instant::now() + Duration::from_secs(200);
        loop {
            let task = self.bench.task(id).await;
            if task.kind().is_final() {
                return task;
            }
            if let Some(lease) = task.lease() {
                let left = lease
                    .ends_at()
                    .since(dueline_ports::Clock::now(&*self.bench.clock));
                assert!(!left.is_zero(), "the lease has ended");
            }
            assert!(Instant::now() < too_late, "{task:?}");
            tokio::time::sleep(MS * 20).await;
        }
    }

    async fn stop(self) {
        self.shutdown.stop_intake();
        self.group.wait().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_task_costs_a_create_a_claim_that_starts_and_a_finish() {
    for takes in [0, 5, 1_900] {
        let host = Host::new(move |_| async move {
            tokio::time::sleep(MS * takes).await;
            Ok(executor::Success::default())
        })
        .await;
        for id in host.submit(3).await {
            let task = host.until_final(id).await;
            assert_eq!((task.kind(), task.tries), (StateKind::Succeeded, 1));
        }
        let mut commands = host.store.commands();
        commands.sort_unstable();
        let (claim, finish) = (Verb::Claim, Verb::Finish);
        assert_eq!(commands, [claim, claim, claim, finish, finish, finish]);
        assert_eq!(host.store.creates(), 3);
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_running_costs_fifteen_heartbeats_at_most_and_keeps_its_lease() {
    let host = Host::new(|_| async {
        tokio::time::sleep(MS * 60_000).await;
        Ok(executor::Success::default())
    })
    .await;
    let id = host.submit(1).await[0];
    let task = host.until_final(id).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Succeeded, 1));
    let commands = host.store.commands();
    assert_eq!(commands.first(), Some(&Verb::Claim));
    assert_eq!(commands.last(), Some(&Verb::Finish));
    let between = &commands[1..commands.len() - 1];
    assert!(
        between.iter().all(|verb| *verb == Verb::Heartbeat),
        "{between:?}"
    );
    let heartbeats = between.len();
    assert!((8..=15).contains(&heartbeats), "{heartbeats} writes");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_is_cancelled_within_half_a_heartbeat_timeout() {
    for cancelled_after in [100, 2_500, 5_300, 9_999] {
        let host = Host::new(|task| async move {
            task.stopped().await;
            Err(executor::Failure::Cancelled)
        })
        .await;
        let id = host.submit(1).await[0];
        tokio::time::sleep(MS * cancelled_after).await;
        let cancelled_at = Instant::now();
        let (running, reason) = (RunningCancel::Request, None);
        host.bench
            .apply(id, Event::Cancel { running, reason })
            .await;
        let task = host.until_final(id).await;
        assert_eq!(task.kind(), StateKind::Cancelled);
        let took = cancelled_at.elapsed();
        assert!(took <= MS * 5_000, "{took:?}");
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_shuts_down_uses_no_tries() {
    let host = Host::new(|task| async move {
        task.stopped().await;
        std::future::pending().await
    })
    .await;
    let ids = host.submit(30).await;
    tokio::time::sleep(MS * 100).await;
    let (bench, shutdown) = (&host.bench, &host.shutdown);
    shutdown.stop_work();
    host.group.wait().await.unwrap();
    for id in ids {
        let task = bench.task(id).await;
        assert_eq!((task.kind(), task.tries), (StateKind::Enqueued, 0));
    }
}
