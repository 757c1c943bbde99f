//! Priority scenarios: how long tasks of high priority wait beside a flood of low priority in the same job.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_all_in_one::Node;
use dueline_api::{
    Call,
    operation::{PauseJob, Submit},
};
use dueline_domain::{Handler, JobName, NewTask, Policy, Priority, PriorityError};
use dueline_executor::{Registry, RunningTask, Success, handler_fn};
use dueline_ports::Clock as _;
use dueline_runtime::SystemClock;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    Bench, BenchReport, Latencies, rss_peak_kib,
    target::{self, BenchTarget, JOB, number_of, put_job},
};
use crate::exit::CliError;

/// How long each task runs.
const RUN: Duration = Duration::from_millis(20);
/// Worker slots, unless `--concurrency` is set.
const SLOTS: u32 = 4;
/// Tasks of high priority, first alone and then beside the flood.
const URGENT_TASKS: u64 = 100;
/// Time between two of them.
const URGENT_PERIOD: Duration = Duration::from_millis(50);
/// How far ahead they are scheduled, where the tasks are.
const SCHEDULED_AHEAD: Duration = Duration::from_millis(100);
/// Longest time until all of them have started.
const START_MAX: Duration = Duration::from_secs(120);
/// How much longer than one run a task of high priority may wait for its start (95th percentile).
const WAIT_MAX_MS: f64 = 100.0;

/// The number in the payload of a task of low priority; the others carry their due time.
const LOW: u64 = 0;

type Waits = Arc<Mutex<Latencies>>;

/// Measures the time from the due time to the start. The tasks are due at once, or `is_scheduled` and thus enqueued by
/// the consumer, the flood all at the same time.
pub(super) async fn priority(
    bench: &Bench,
    target: &BenchTarget,
    is_scheduled: bool,
) -> Result<BenchReport, CliError> {
    let (tasks, slots) = (bench.tasks(100_000), bench.callers(SLOTS));
    let waits = Waits::default();
    let node = target
        .node("priority", Some((slots, registry(waits.clone())?)))
        .await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    submit_urgent(target, &node, &job, is_scheduled).await?;
    until_started(&waits).await?;
    let alone = std::mem::take(&mut *lock(&waits));

    if is_scheduled {
        // Tasks of a paused job wait for the consumer, which finds all of them due when the job is resumed.
        node.frontend()
            .call(
                &Call::default(),
                PauseJob {
                    name: job.clone(),
                    paused: true,
                },
            )
            .await?;
    }
    let level = level("low")?;
    let low = || task(target, &job, level, LOW);
    let mut left = usize::try_from(tasks).unwrap_or(usize::MAX);
    while left > 0 {
        let count = left.min(2_000);
        for answer in node
            .frontend()
            .call(
                &Call::default(),
                Submit {
                    tasks: (0..count).map(|_| low()).collect(),
                },
            )
            .await?
        {
            answer?;
        }
        left -= count;
    }
    if is_scheduled {
        node.frontend()
            .call(
                &Call::default(),
                PauseJob {
                    name: job.clone(),
                    paused: false,
                },
            )
            .await?;
    }
    let started = Instant::now();
    submit_urgent(target, &node, &job, is_scheduled).await?;
    until_started(&waits).await?;
    let elapsed = started.elapsed();
    target.stop(node).await?;

    let waits = lock(&waits);
    let mut report = bench.report(URGENT_TASKS, slots).measured(elapsed, &waits);
    report.db_bytes = target.db_bytes("priority");
    report.rss_kib = rss_peak_kib();
    let alone_ms = alone.quantile_ms(0.95);
    // Without a flood, a task on a shared store waits for its message, which is one receive.
    let receive_ms = if target.is_shared() { alone_ms } else { 0.0 };
    #[expect(clippy::cast_precision_loss, reason = "at most a million")]
    report.more.extend([
        ("flood", tasks as f64),
        ("alone_p95_ms", alone_ms),
        ("p95_ms", waits.quantile_ms(0.95)),
        (
            "p95_limit_ms",
            RUN.as_secs_f64() * 1e3 + WAIT_MAX_MS + receive_ms,
        ),
    ]);
    Ok(report)
}

/// A registry with a handler that takes as long as a run does, and records the waits of urgent tasks.
fn registry(waits: Waits) -> Result<Registry, CliError> {
    let handler = handler_fn(move |task: RunningTask| {
        let due_ms = number_of(task.input());
        if due_ms != LOW {
            let waited_ms = now_ms().saturating_sub(due_ms);
            lock(&waits).record(Duration::from_millis(waited_ms));
        }
        async {
            tokio::time::sleep(RUN).await;
            Ok::<_, dueline_executor::Failure>(Success::default())
        }
    });
    Registry::builder()
        .job(JOB, handler)
        .build()
        .map_err(|error| CliError::invalid(error.to_string()))
}

async fn submit_urgent(
    target: &BenchTarget,
    node: &Node,
    job: &JobName,
    is_scheduled: bool,
) -> Result<(), CliError> {
    let level = level("high")?;
    let mut ticks = interval(URGENT_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..URGENT_TASKS {
        ticks.tick().await;
        let now = SystemClock.now();
        let run_at = is_scheduled.then(|| now.after(SCHEDULED_AHEAD));
        let due_ms = u64::try_from(run_at.unwrap_or(now).millis()).unwrap_or(0);
        let task = NewTask {
            due: run_at.into(),
            ..task(target, job, level, due_ms)
        };
        for answer in node
            .frontend()
            .call(&Call::default(), Submit { tasks: vec![task] })
            .await?
        {
            answer?;
        }
    }
    Ok(())
}

fn level(name: &str) -> Result<Priority, CliError> {
    name.parse()
        .map_err(|error: PriorityError| CliError::invalid(error.to_string()))
}

fn task(target: &BenchTarget, job: &JobName, priority: Priority, number: u64) -> NewTask {
    NewTask {
        priority,
        ..target.task(job, number)
    }
}

/// Waits until all urgent tasks have started.
async fn until_started(waits: &Waits) -> Result<(), CliError> {
    let ends_at = Instant::now() + START_MAX;
    while lock(waits).len() < URGENT_TASKS {
        if Instant::now() > ends_at {
            return Err(target::stalled("a task of high priority"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn now_ms() -> u64 {
    u64::try_from(SystemClock.now().millis()).unwrap_or(0)
}

fn lock(waits: &Waits) -> MutexGuard<'_, Latencies> {
    waits.lock().unwrap_or_else(PoisonError::into_inner)
}
