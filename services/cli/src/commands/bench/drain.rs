//! A worker on a full file: how many tasks a second it starts and has recorded as done.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dueline_all_in_one::Node;
use dueline_domain::{Handler, Policy};
use dueline_executor::{Registry, Success, handler_fn};
use tokio::time::Instant;

use super::{
    Bench, Latencies, Report, enqueue,
    place::{self, JOB, Place, fill, put_job},
    rss_peak_kib,
};
use crate::exit::CliError;

/// Longest time without a finished task.
const STALL_MAX: Duration = Duration::from_secs(60);

/// A handler that does nothing.
pub(super) fn no_op() -> Result<Registry, CliError> {
    Registry::builder()
        .job(
            JOB,
            handler_fn(|_task| async { Ok::<_, dueline_executor::Failure>(Success::default()) }),
        )
        .build()
        .map_err(|error| CliError::invalid(error.to_string()))
}

pub(super) async fn drain(bench: &Bench, place: &Place) -> Result<Report, CliError> {
    let tasks = bench.tasks(100_000);
    filled(place, "drain", tasks).await?;
    let begun = Arc::new(Mutex::new(Latencies::new()));
    let origin = Instant::now();
    let registry = {
        let begun = begun.clone();
        let note = move |_task| {
            let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
            begun.record(origin.elapsed());
            async { Ok::<_, dueline_executor::Failure>(Success::default()) }
        };
        Registry::builder()
            .job(JOB, handler_fn(note))
            .build()
            .map_err(|error| CliError::invalid(error.to_string()))?
    };
    let elapsed = drained(place, "drain", (bench.slots(), registry), tasks).await?;
    let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut report = bench.report(tasks, bench.slots());
    report.db_bytes = place.db_bytes("drain");
    report.rss_kib = rss_peak_kib();
    Ok(report.measured(elapsed, &begun))
}

/// Callers submit while a worker runs; the clock stops when all tasks are recorded as done.
pub(super) async fn both(bench: &Bench, place: &Place) -> Result<Report, CliError> {
    let tasks = bench.tasks(100_000);
    let node = place.node("both", Some((bench.slots(), no_op()?))).await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let started = Instant::now();
    let latencies = enqueue::submit(place, &node.frontend(), &job, tasks, 64).await?;
    let submitted = started.elapsed();
    until_finished(&node, tasks).await?;
    let elapsed = started.elapsed();
    let mut report = bench.report(tasks, bench.slots());
    report.db_bytes = place.db_bytes("both");
    report.more.insert("submitted_s", submitted.as_secs_f64());
    place.stop(node).await?;
    report.rss_kib = rss_peak_kib();
    Ok(report.measured(elapsed, &latencies))
}

/// The same number of tasks drained from a small backlog and from a large one.
pub(super) async fn growth(bench: &Bench, place: &Place) -> Result<Report, CliError> {
    let many = bench.tasks(1_000_000);
    let drained_tasks = 200_000;
    let mut rates = Vec::new();
    for (name, pending) in [("few", 1_000), ("many", many)] {
        filled(place, name, pending + drained_tasks).await?;
        let elapsed = drained(place, name, (bench.slots(), no_op()?), drained_tasks).await?;
        #[expect(clippy::cast_precision_loss, reason = "two hundred thousand")]
        rates.push(drained_tasks as f64 / elapsed.as_secs_f64());
    }
    let mut report = bench.report(drained_tasks, bench.slots());
    report.db_bytes = place.db_bytes("many");
    report.rss_kib = rss_peak_kib();
    report.rate_per_s = rates[1].round();
    report.more.insert("few_rate_per_s", rates[0].round());
    report
        .more
        .insert("ratio", (rates[1] / rates[0] * 1_000.0).round() / 1_000.0);
    Ok(report)
}

/// Makes the file `name` with `tasks` pending tasks, as an earlier process would have left it.
async fn filled(place: &Place, name: &str, tasks: u64) -> Result<(), CliError> {
    let node = place.node(name, None).await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    fill(place, &node.frontend(), &job, tasks, None).await?;
    place.stop(node).await
}

/// Opens the file `name` with a worker; the time from the worker's start until `tasks` tasks are recorded as done.
async fn drained(
    place: &Place,
    name: &str,
    worker: (u32, Registry),
    tasks: u64,
) -> Result<Duration, CliError> {
    let node = place.node(name, Some(worker)).await?;
    let started = Instant::now();
    until_finished(&node, tasks).await?;
    let elapsed = started.elapsed();
    place.stop(node).await?;
    Ok(elapsed)
}

/// Waits until the node's workers have recorded the ends of `tasks` tasks.
pub(super) async fn until_finished(node: &Node, tasks: u64) -> Result<(), CliError> {
    let finished = || -> u64 { node.executors().iter().map(|e| e.counts().finished).sum() };
    let (mut last, mut moved) = (finished(), Instant::now());
    while last < tasks {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = finished();
        if now != last {
            (last, moved) = (now, Instant::now());
        } else if moved.elapsed() > STALL_MAX {
            return Err(place::stalled("the drain"));
        }
    }
    Ok(())
}
