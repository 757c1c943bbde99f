//! Latency scenarios: how long a task waits for its start.

use dueline_api::{Call, operation::Submit};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dueline_domain::{Due, Handler, NewTask, Policy};
use dueline_executor::{Registry, RunningTask, Success, handler_fn};
use dueline_ports::Clock as _;
use dueline_runtime::SystemClock;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    Bench, BenchReport, Latencies,
    drain::until_finished,
    rss_peak_kib,
    target::{BenchTarget, JOB, number_of, put_job},
};
use crate::exit::CliError;

/// A registry with a handler that calls `on_start` with the number in the payload.
fn calling(on_start: impl Fn(u64) + Send + Sync + 'static) -> Result<Registry, CliError> {
    let on_start = Arc::new(on_start);
    let handler = handler_fn(move |task: RunningTask| {
        on_start(number_of(task.input()));
        async { Ok::<_, dueline_executor::Failure>(Success::default()) }
    });
    Registry::builder()
        .job(JOB, handler)
        .build()
        .map_err(|error| CliError::invalid(error.to_string()))
}

/// How late tasks have started, whose payload begins with their due time.
#[derive(Default)]
pub(super) struct Delays {
    pub(super) late: Latencies,
    /// Tasks that started before their due time.
    pub(super) early: u32,
}

impl Delays {
    /// A registry with a handler that records the delay of each task.
    pub(super) fn recorded() -> Result<(Registry, Arc<Mutex<Self>>), CliError> {
        let delays = Arc::<Mutex<Self>>::default();
        let recorder = delays.clone();
        let registry = calling(move |due_ms| {
            let now_ms = u64::try_from(SystemClock.now().millis()).unwrap_or(0);
            let mut delays = recorder.lock().unwrap_or_else(PoisonError::into_inner);
            match now_ms.checked_sub(due_ms) {
                Some(late_ms) => delays.late.record(Duration::from_millis(late_ms)),
                None => delays.early += 1,
            }
        })?;
        Ok((registry, delays))
    }
}

/// Submits one task each 20 ms and measures the time from just before the submit to the first line of the handler.
pub(super) async fn latency(bench: &Bench, target: &BenchTarget) -> Result<BenchReport, CliError> {
    let tasks = bench.tasks(250);
    let origin = Instant::now();
    let latencies = Arc::new(Mutex::new(Latencies::new()));
    let registry = {
        let latencies = latencies.clone();
        calling(move |submitted_us| {
            let waited = origin
                .elapsed()
                .saturating_sub(Duration::from_micros(submitted_us));
            latencies
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .record(waited);
        })?
    };
    let node = target
        .node("latency", Some((bench.slots(), registry)))
        .await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    for _ in 0..tasks {
        ticks.tick().await;
        let now_us = u64::try_from(origin.elapsed().as_micros()).unwrap_or(0);
        for answer in node
            .frontend()
            .call(
                &Call::default(),
                Submit {
                    tasks: vec![target.task(&job, now_us)],
                },
            )
            .await?
        {
            answer?;
        }
    }
    until_finished(&node, tasks).await?;
    let elapsed = started.elapsed();
    target.stop(node).await?;
    let mut report = bench.report(tasks, bench.slots());
    report.db_bytes = target.db_bytes("latency");
    report.rss_kib = rss_peak_kib();
    let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(report.measured(elapsed, &latencies))
}

/// Submits tasks that are due in two seconds, one each 5 ms. Measures how late each task starts, and counts the tasks
/// that start before their due time.
pub(super) async fn schedule(bench: &Bench, target: &BenchTarget) -> Result<BenchReport, CliError> {
    let tasks = bench.tasks(200);
    let (registry, delays) = Delays::recorded()?;
    let node = target
        .node("schedule", Some((bench.slots(), registry)))
        .await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let mut ticks = interval(Duration::from_millis(5));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    for _ in 0..tasks {
        ticks.tick().await;
        let due = SystemClock.now().after(Duration::from_secs(2));
        let number = u64::try_from(due.millis()).unwrap_or(0);
        let task = NewTask {
            due: Due::At(due),
            ..target.task(&job, number)
        };
        for answer in node
            .frontend()
            .call(&Call::default(), Submit { tasks: vec![task] })
            .await?
        {
            answer?;
        }
    }
    until_finished(&node, tasks).await?;
    let elapsed = started.elapsed();
    target.stop(node).await?;
    let mut report = bench.report(tasks, bench.slots());
    report.db_bytes = target.db_bytes("schedule");
    report.rss_kib = rss_peak_kib();
    let delays = delays.lock().unwrap_or_else(PoisonError::into_inner);
    report.more.insert("early", f64::from(delays.early));
    Ok(report.measured(elapsed, &delays.late))
}
