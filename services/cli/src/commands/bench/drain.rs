//! Drain scenarios: how many tasks per second a worker runs from a backlog.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dueline_all_in_one::Node;
use dueline_domain::{Handler, Policy};
use dueline_executor::{Registry, Success, handler_fn};
use tokio::time::Instant;

use super::{
    Bench, BenchReport, Latencies, enqueue, rss_peak_kib,
    target::{self, BenchTarget, JOB, fill, put_job},
};
use crate::exit::CliError;

/// Longest time without a finished task.
const STALL_MAX: Duration = Duration::from_secs(60);

/// A registry with a handler that does nothing.
pub(super) fn no_op() -> Result<Registry, CliError> {
    Registry::builder()
        .job(
            JOB,
            handler_fn(|_task| async { Ok::<_, dueline_executor::Failure>(Success::default()) }),
        )
        .build()
        .map_err(|error| CliError::invalid(error.to_string()))
}

pub(super) async fn drain(bench: &Bench, target: &BenchTarget) -> Result<BenchReport, CliError> {
    let tasks = bench.tasks(100_000);
    create_backlog(target, "drain", tasks).await?;
    let starts = Arc::new(Mutex::new(Latencies::new()));
    let origin = Instant::now();
    let registry = {
        let starts = starts.clone();
        let record = move |_task| {
            let mut starts = starts.lock().unwrap_or_else(PoisonError::into_inner);
            starts.record(origin.elapsed());
            async { Ok::<_, dueline_executor::Failure>(Success::default()) }
        };
        Registry::builder()
            .job(JOB, handler_fn(record))
            .build()
            .map_err(|error| CliError::invalid(error.to_string()))?
    };
    let elapsed = run_backlog(target, "drain", (bench.slots(), registry), tasks).await?;
    let starts = starts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let mut report = bench.report(tasks, bench.slots());
    report.db_bytes = target.db_bytes("drain");
    report.rss_kib = rss_peak_kib();
    Ok(report.measured(elapsed, &starts))
}

/// Callers submit while a worker runs, until the outcomes of all tasks are reported.
pub(super) async fn both(bench: &Bench, target: &BenchTarget) -> Result<BenchReport, CliError> {
    let tasks = bench.tasks(100_000);
    let node = target.node("both", Some((bench.slots(), no_op()?))).await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let started = Instant::now();
    let latencies = enqueue::submit(target, &node.frontend(), &job, tasks, 64).await?;
    let submitted = started.elapsed();
    until_finished(&node, tasks).await?;
    let elapsed = started.elapsed();
    let mut report = bench.report(tasks, bench.slots());
    report.db_bytes = target.db_bytes("both");
    report.more.insert("submitted_s", submitted.as_secs_f64());
    target.stop(node).await?;
    report.rss_kib = rss_peak_kib();
    Ok(report.measured(elapsed, &latencies))
}

/// Drains the same number of tasks from a small backlog and from a large one.
pub(super) async fn growth(bench: &Bench, target: &BenchTarget) -> Result<BenchReport, CliError> {
    let many = bench.tasks(1_000_000);
    let drained_tasks = 200_000;
    let mut rates = Vec::new();
    for (name, pending) in [("few", 1_000), ("many", many)] {
        create_backlog(target, name, pending + drained_tasks).await?;
        let elapsed = run_backlog(target, name, (bench.slots(), no_op()?), drained_tasks).await?;
        #[expect(clippy::cast_precision_loss, reason = "two hundred thousand")]
        rates.push(drained_tasks as f64 / elapsed.as_secs_f64());
    }
    let mut report = bench.report(drained_tasks, bench.slots());
    report.db_bytes = target.db_bytes("many");
    report.rss_kib = rss_peak_kib();
    report.rate_per_s = rates[1].round();
    report.more.insert("few_rate_per_s", rates[0].round());
    report
        .more
        .insert("ratio", (rates[1] / rates[0] * 1_000.0).round() / 1_000.0);
    Ok(report)
}

/// Stores a backlog of `tasks` tasks under `name`, and stops the services again.
async fn create_backlog(target: &BenchTarget, name: &str, tasks: u64) -> Result<(), CliError> {
    let node = target.node(name, None).await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    fill(target, &node.frontend(), &job, tasks, None).await?;
    target.stop(node).await
}

/// Starts services and a worker on the backlog `name`. Returns the time from the start of the worker until the outcomes
/// of `tasks` tasks are reported.
async fn run_backlog(
    target: &BenchTarget,
    name: &str,
    worker: (u32, Registry),
    tasks: u64,
) -> Result<Duration, CliError> {
    let node = target.node(name, Some(worker)).await?;
    let started = Instant::now();
    until_finished(&node, tasks).await?;
    let elapsed = started.elapsed();
    target.stop(node).await?;
    Ok(elapsed)
}

/// Waits until the node's executors have reported the outcomes of `tasks` tasks.
pub(super) async fn until_finished(node: &Node, tasks: u64) -> Result<(), CliError> {
    let finished = || -> u64 { node.executors().iter().map(|e| e.counts().finished).sum() };
    let (mut last, mut changed_at) = (finished(), Instant::now());
    while last < tasks {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let count = finished();
        if count != last {
            (last, changed_at) = (count, Instant::now());
        } else if changed_at.elapsed() > STALL_MAX {
            return Err(target::stalled("the drain"));
        }
    }
    Ok(())
}
