//! All services in one process on a real SQLite file, with handlers in Rust, as an embedding program uses them.

mod staged;

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_all_in_one::{Drained, Node, NodeConfig, WorkerConfig};
use dueline_api::{
    Call,
    operation::{Cancel, GetJobStats, GetTask, Modify, PauseJob, PutJob, Submit},
};
use dueline_domain::{
    Backoff, Due, Job, JobName, Modification, NewTask, Overrides, Policy, Priority, Quota,
    RetryClass, RetryPolicy, RunEnd, StateKind, Task, TaskOptions,
};
use dueline_executor::{Config, Failure, Registry, RunningTask, Success, handler_fn};
use dueline_ports::{Clock as _, Rng as _};
use dueline_runtime::{SystemClock, SystemRng};
use tokio::sync::Semaphore;

const LONG: Duration = Duration::from_secs(20);
/// The wait before the first retry.
const BACKOFF: Duration = Duration::from_millis(300);

struct EmbeddedNode {
    node: Node,
    _folder: tempfile::TempDir,
}

fn job() -> JobName {
    JobName::parse("job").unwrap()
}

impl EmbeddedNode {
    /// A node with one job, whose tasks run `handle` in `concurrency` slots.
    async fn new<F, Fut>(concurrency: u32, handle: F) -> Self
    where
        F: Fn(RunningTask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Success, Failure>> + Send + 'static,
    {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Self::config(&folder);
        let registry = Registry::builder().job("job", handler_fn(handle)).build();
        config.workers.push(WorkerConfig {
            executor: Config {
                concurrency,
                embedded: true,
                ..Config::new("embedded", 1)
            },
            registry: registry.unwrap(),
        });
        let rig = Self {
            node: Node::start(config).await.unwrap(),
            _folder: folder,
        };
        rig.put_job(false).await;
        rig
    }

    fn config(folder: &tempfile::TempDir) -> NodeConfig {
        NodeConfig::embedded(format!("sqlite:{}", folder.path().join("t.db").display()))
    }

    async fn limit_running(&self, running_max: Option<u32>) {
        let quota = Quota {
            running_max,
            ..Quota::default()
        };
        let job = Job {
            quota,
            ..Job::new(job())
        };
        let frontend = self.node.frontend();
        let put = frontend.call(&Call::default(), PutJob::from(job)).await;
        put.unwrap();
    }

    async fn put_job(&self, paused: bool) {
        let wait = Backoff::new(BACKOFF, 2.0, 0.0, LONG).unwrap();
        let retry = RetryPolicy {
            retries_max: Some(2),
            standard: wait,
            ..RetryPolicy::default()
        };
        let frontend = self.node.frontend();
        let call = Call::default();
        let put = frontend.call(
            &call,
            PutJob::from(Job {
                policy: Policy {
                    retry,
                    ..Policy::default()
                },
                paused,
                ..Job::new(job())
            }),
        );
        put.await.unwrap();
    }

    async fn submit(&self, task: NewTask) -> Task {
        let id = task.id;
        let answer = self
            .node
            .frontend()
            .call(&Call::default(), Submit { tasks: vec![task] })
            .await
            .unwrap()
            .remove(0);
        answer.unwrap();
        self.node
            .frontend()
            .call(
                &Call::default(),
                GetTask {
                    job: job(),
                    id,
                    wait: None,
                },
            )
            .await
            .unwrap()
    }

    async fn ended(&self, task: &Task) -> Task {
        let frontend = self.node.frontend();
        let task = frontend
            .call(
                &Call::default(),
                GetTask {
                    job: job(),
                    id: task.id,
                    wait: Some(LONG),
                },
            )
            .await
            .unwrap();
        assert!(task.kind().is_final(), "still {}", task.kind());
        task
    }

    async fn until(&self, task: &Task, holds: impl Fn(&Task) -> bool) -> Task {
        let ends_at = tokio::time::Instant::now() + LONG;
        loop {
            let now = self
                .node
                .frontend()
                .call(
                    &Call::default(),
                    GetTask {
                        job: job(),
                        id: task.id,
                        wait: None,
                    },
                )
                .await;
            let now = now.unwrap();
            if holds(&now) {
                return now;
            }
            assert!(
                tokio::time::Instant::now() < ends_at,
                "the last state was {now:#?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn pause(&self, paused: bool) {
        let frontend = self.node.frontend();
        frontend
            .call(
                &Call::default(),
                PauseJob {
                    name: job(),
                    paused,
                },
            )
            .await
            .unwrap();
    }

    /// How many tasks are in this state.
    async fn count(&self, kind: StateKind) -> u64 {
        let stats = self
            .node
            .frontend()
            .call(&Call::default(), GetJobStats { name: job() })
            .await
            .unwrap();
        stats.by_state.get(&kind).copied().unwrap_or(0)
    }

    async fn until_count(&self, kind: StateKind, expected: u64) {
        let ends_at = tokio::time::Instant::now() + LONG;
        loop {
            let now = self.count(kind).await;
            if now == expected {
                return;
            }
            assert!(tokio::time::Instant::now() < ends_at, "{now} are {kind}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn stop(self) {
        assert_eq!(self.node.stop(LONG).await, Ok(Drained::InTime));
    }
}

fn task(payload: &str) -> NewTask {
    let id = SystemRng.task_id(SystemClock.now());
    NewTask::now(id, job(), payload.to_owned().into())
}

fn ok() -> Result<Success, Failure> {
    Ok(Success::default())
}

/// Waits until the test lets one more run continue.
async fn pass(gate: &Semaphore) {
    gate.acquire().await.unwrap().forget();
}

/// A node whose handlers wait for a permit of the returned gate.
async fn gated(concurrency: u32) -> (EmbeddedNode, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let handler_gate = gate.clone();
    let rig = EmbeddedNode::new(concurrency, move |_| {
        let gate = handler_gate.clone();
        async move {
            pass(&gate).await;
            ok()
        }
    });
    (rig.await, gate)
}

#[tokio::test(flavor = "multi_thread")]
async fn f_132_f_014_f_067_a_task_runs_in_the_embedding_process_and_its_times_are_stored() {
    let (rig, gate) = gated(4).await;
    let submitted = rig.submit(task("x")).await;
    assert_eq!(submitted.finished_at, None);
    let running = rig
        .until(&submitted, |t| t.kind() == StateKind::Processing)
        .await;
    assert!(running.started_at.is_some() && running.finished_at.is_none());
    gate.add_permits(1);
    let task = rig.ended(&submitted).await;
    assert_eq!(task.kind(), StateKind::Succeeded);
    assert!(task.finished_at >= task.started_at && task.started_at.is_some());
    assert_eq!(task.state.trigger_at(), None, "the task has ended");
    rig.stop().await;
}

/// Submits tasks of high priority beside a flood of low ones, which are due at once or when the consumer finds them.
/// Returns how many other tasks began between the due time and the start of each.
async fn begun_before_urgent_tasks(is_scheduled: bool) -> Vec<u64> {
    let begun = Arc::new(AtomicU64::new(0));
    let (starts, mut started) = tokio::sync::mpsc::unbounded_channel();
    let counter = begun.clone();
    let rig = EmbeddedNode::new(4, move |task| {
        let number = counter.fetch_add(1, Ordering::SeqCst);
        if task.input().starts_with(b"high") {
            let _ = starts.send(number);
        }
        async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            ok()
        }
    })
    .await;
    rig.pause(is_scheduled).await;
    let low = || NewTask {
        priority: "low".parse().unwrap(),
        ..task("low")
    };
    let flood: Vec<_> = (0..10_000).map(|_| low()).collect();
    for answer in rig
        .node
        .frontend()
        .call(&Call::default(), Submit { tasks: flood })
        .await
        .unwrap()
    {
        answer.unwrap();
    }
    rig.pause(false).await;
    let mut others = Vec::new();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        let wait = Duration::from_millis(if is_scheduled { 50 } else { 0 });
        let high = NewTask {
            priority: "high".parse().unwrap(),
            due: is_scheduled.then(|| SystemClock.now().after(wait)).into(),
            ..task("high")
        };
        rig.submit(high).await;
        tokio::time::sleep(wait).await;
        let due = begun.load(Ordering::SeqCst);
        let number = tokio::time::timeout(LONG, started.recv()).await;
        others.push(number.unwrap().unwrap().saturating_sub(due));
    }
    // Thousands of low tasks are left.
    rig.node.stop(Duration::ZERO).await.unwrap();
    others.sort_unstable();
    others
}

/// The 95th percentile of what begins before an urgent task: what its worker had claimed already, and what it claims
/// while the urgent task is stored or enqueued. Four slots of 20 ms begin 20 tasks in 100 ms.
const BEGUN_BEFORE_MAX: u64 = 4 + 4 + 20;

#[tokio::test(flavor = "multi_thread")]
async fn f_022_f_152_a_flood_of_low_priority_does_not_delay_a_task_of_high_priority() {
    let others = begun_before_urgent_tasks(false).await;
    assert!(others[18] <= BEGUN_BEFORE_MAX, "{others:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_022_f_152_a_flood_that_becomes_due_does_not_delay_a_scheduled_task_of_high_priority() {
    let others = begun_before_urgent_tasks(true).await;
    assert!(others[18] <= BEGUN_BEFORE_MAX, "{others:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_052_a_running_task_has_its_owner_start_and_expiry_and_an_ended_task_does_not() {
    let rig = EmbeddedNode::new(4, |task| async move {
        task.stopped().await;
        ok()
    })
    .await;
    let submitted = rig.submit(task("x")).await;
    let running = rig
        .until(&submitted, |t| t.kind() == StateKind::Processing)
        .await;
    let lease = running.lease().unwrap().clone();
    assert!(lease.worker.as_str().starts_with("embedded@"));
    assert_eq!((running.tries, running.started_at.is_some()), (1, true));
    assert!(lease.expires_at > lease.heartbeat_at && lease.heartbeat_at >= lease.claimed_at);
    let cancel = dueline_domain::RunningCancel::Request;
    let frontend = rig.node.frontend();
    frontend
        .call(
            &Call::default(),
            Cancel {
                job: job(),
                id: running.id,
                running: cancel,
                reason: None,
                family: false,
            },
        )
        .await
        .unwrap();
    let ended = rig.ended(&running).await;
    assert_eq!(ended.lease(), None);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_055_two_retries_are_three_runs_and_none_is_one() {
    let rig = EmbeddedNode::new(4, |_| async { Err(Failure::from("always")) }).await;
    let three = rig.submit(task("x")).await;
    let one = rig
        .submit(NewTask {
            options: Some(Box::new(TaskOptions {
                overrides: Some(Overrides {
                    retries_max: Some(0),
                    ..Overrides::default()
                }),
                ..TaskOptions::default()
            })),
            ..task("y")
        })
        .await;
    for (task, runs) in [(three, 3), (one, 1)] {
        let task = rig.ended(&task).await;
        assert_eq!((task.kind(), task.tries), (StateKind::Failed, runs));
        let history = task.history.unwrap().runs;
        assert_eq!(history.len(), usize::try_from(runs).unwrap());
        assert!(history.iter().all(|run| run.end == RunEnd::Retriable));
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_060_f_068_a_fatal_failure_is_final_at_once_with_no_trigger() {
    let rig = EmbeddedNode::new(4, |_| async { Err(Failure::fatal("broken")) }).await;
    let submitted = rig.submit(task("x")).await;
    let task = rig.ended(&submitted).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Failed, 1));
    assert_eq!(task.state.trigger_at(), None);
    assert_eq!(task.error.as_deref(), Some("broken"));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_061_f_066_the_trigger_is_the_due_time_and_after_a_failure_the_end_of_the_backoff() {
    let gate = Arc::new(Semaphore::new(0));
    let handler_gate = gate.clone();
    let rig = EmbeddedNode::new(4, move |task| {
        let gate = handler_gate.clone();
        async move {
            if task.attempt() > 0 {
                return ok();
            }
            pass(&gate).await;
            Err(Failure::from("once"))
        }
    })
    .await;
    // While its job is paused, a task keeps its state, so that the test can read it.
    rig.pause(true).await;
    let due = SystemClock.now().after(Duration::from_millis(400));
    let new = rig
        .submit(NewTask {
            due: Due::At(due),
            ..task("x")
        })
        .await;
    assert_eq!(
        (new.kind(), new.state.trigger_at()),
        (StateKind::New, Some(due))
    );
    rig.pause(false).await;
    let running = rig.until(&new, |t| t.kind() == StateKind::Processing).await;
    assert!(running.started_at >= Some(due), "not before it was due");

    rig.pause(true).await;
    gate.add_permits(1);
    let retriable = rig.until(&new, |t| t.kind() == StateKind::Retriable).await;
    let failed_at = retriable.history.as_ref().unwrap().runs[0].finished_at;
    let retry_at = failed_at.after(BACKOFF);
    assert_eq!(retriable.state.trigger_at(), Some(retry_at));
    assert_eq!(retriable.run_at, due, "the original due time stays");
    rig.pause(false).await;
    let task = rig.ended(&new).await;
    assert_eq!(task.kind(), StateKind::Succeeded);
    assert!(
        task.started_at >= Some(retry_at),
        "not before its backoff was over"
    );
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_025_priority_counts_only_once_a_task_is_ready() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let rig = EmbeddedNode::new(1, {
        let order = order.clone();
        move |task: RunningTask| {
            order.lock().unwrap().push(task.input().clone());
            async { ok() }
        }
    })
    .await;
    let high_later = NewTask {
        priority: Priority::new(100).unwrap(),
        due: Due::At(SystemClock.now().after(Duration::from_secs(3_600))),
        ..task("high")
    };
    let low_now = NewTask {
        priority: Priority::new(-100).unwrap(),
        ..task("low")
    };
    let high = rig.submit(high_later).await;
    let low = rig.submit(low_now).await;
    rig.ended(&low).await;
    let frontend = rig.node.frontend();
    let later = frontend
        .call(
            &Call::default(),
            GetTask {
                job: job(),
                id: high.id,
                wait: None,
            },
        )
        .await
        .unwrap();
    assert_eq!(later.kind(), StateKind::New, "the low one did not wait");
    let now = Modification {
        run_at: Some(SystemClock.now()),
        ..Modification::default()
    };
    frontend
        .call(
            &Call::default(),
            Modify {
                job: job(),
                id: high.id,
                change: now,
            },
        )
        .await
        .unwrap();
    rig.ended(&high).await;
    assert_eq!(*order.lock().unwrap(), ["low", "high"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_050_the_next_run_gets_the_latest_checkpoint_and_the_original_stays() {
    let rig = EmbeddedNode::new(4, |task| async move {
        if task.attempt() > 0 {
            return Ok(Success::from(task.input().clone()));
        }
        for step in 0..3 {
            task.checkpoint(format!("step {step}")).await?;
        }
        Err(Failure::from("after the last checkpoint"))
    })
    .await;
    let submitted = rig.submit(task("original")).await;
    let task = rig.ended(&submitted).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Succeeded, 2));
    assert_eq!(task.result.as_deref(), Some(&b"step 2"[..]));
    assert_eq!(task.payload, "original");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_paused_job_wait_until_it_is_resumed() {
    let rig = EmbeddedNode::new(4, |_| async { ok() }).await;
    rig.put_job(true).await;
    let submitted = rig.submit(task("x")).await;
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    let waiting = rig
        .node
        .frontend()
        .call(
            &Call::default(),
            GetTask {
                job: job(),
                id: submitted.id,
                wait: None,
            },
        )
        .await;
    assert_eq!(waiting.unwrap().kind(), StateKind::New);
    rig.pause(false).await;
    assert_eq!(rig.ended(&submitted).await.kind(), StateKind::Succeeded);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_153_a_pause_also_stops_enqueued_tasks_and_resuming_loses_none() {
    const ALL: u64 = 200;
    let (rig, gate) = gated(1).await;
    let tasks = (0..ALL).map(|n| task(&n.to_string())).collect();
    rig.node
        .frontend()
        .call(&Call::default(), Submit { tasks })
        .await
        .unwrap();
    rig.until_count(StateKind::Processing, 1).await;
    rig.pause(true).await;
    gate.add_permits(Semaphore::MAX_PERMITS);
    // Runs in progress may end, and the controller may dispatch further tasks until it has noticed the pause.
    let mut ended = rig.count(StateKind::Succeeded).await;
    loop {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let before = std::mem::replace(&mut ended, rig.count(StateKind::Succeeded).await);
        if ended == before {
            break;
        }
    }
    assert!(ended < ALL, "all tasks ran although the job is paused");
    rig.pause(false).await;
    rig.until_count(StateKind::Succeeded, ALL).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_two_thousand_tasks_runs_each_of_them_once() {
    let runs = Arc::new(Mutex::new(std::collections::BTreeMap::new()));
    let rig = EmbeddedNode::new(10, {
        let runs = runs.clone();
        move |task: RunningTask| {
            *runs.lock().unwrap().entry(task.id()).or_insert(0) += 1;
            async { ok() }
        }
    })
    .await;
    let tasks: Vec<_> = (0..2_000).map(|n| task(&n.to_string())).collect();
    for answer in rig
        .node
        .frontend()
        .call(&Call::default(), Submit { tasks })
        .await
        .unwrap()
    {
        answer.unwrap();
    }
    rig.until_count(StateKind::Succeeded, 2_000).await;
    assert!(runs.lock().unwrap().values().all(|n| *n == 1));
    assert_eq!(runs.lock().unwrap().len(), 2_000);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g_07_no_more_tasks_of_a_job_run_at_once_than_its_limit() {
    let (running, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let rig = EmbeddedNode::new(12, {
        let (running, most) = (running.clone(), most.clone());
        move |task: RunningTask| {
            most.fetch_max(1 + running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            let running = running.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(3)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                // Each tenth task fails once: a place is free between two tries, too.
                match task.attempt() {
                    1 if task.id().as_bytes()[15].is_multiple_of(10) => {
                        Err(Failure::retriable(RetryClass::Quick, "once"))
                    }
                    _ => ok(),
                }
            }
        }
    })
    .await;
    rig.limit_running(Some(3)).await;
    let tasks: Vec<_> = (0..300).map(|n| task(&n.to_string())).collect();
    let submit = Submit { tasks };
    for answer in rig
        .node
        .frontend()
        .call(&Call::default(), submit)
        .await
        .unwrap()
    {
        answer.unwrap();
    }
    rig.until_count(StateKind::Succeeded, 300).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);

    // Without the limit, as many run as the worker has slots for.
    rig.limit_running(None).await;
    let tasks: Vec<_> = (0..300).map(|n| task(&format!("again {n}"))).collect();
    let submit = Submit { tasks };
    for answer in rig
        .node
        .frontend()
        .call(&Call::default(), submit)
        .await
        .unwrap()
    {
        answer.unwrap();
    }
    rig.until_count(StateKind::Succeeded, 600).await;
    assert!(most.load(Ordering::SeqCst) > 3);
    rig.stop().await;
}
