//! How long a task waits for its start.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dueline_domain::{Handler, NewTask, Policy};
use dueline_executor::{Registry, RunningTask, Success, handler_fn};
use dueline_ports::Clock as _;
use dueline_runtime::SystemClock;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    Bench, Latencies, Report,
    drain::until_finished,
    place::{JOB, Place, number_of, put_job},
    rss_peak_kib,
};
use crate::exit::CliError;

/// A handler that hands the number in the payload to `note`, first thing.
fn noting(note: impl Fn(u64) + Send + Sync + 'static) -> Result<Registry, CliError> {
    let note = Arc::new(note);
    let handler = handler_fn(move |task: RunningTask| {
        note(number_of(task.input()));
        async { Ok::<_, dueline_executor::Failure>(Success::default()) }
    });
    Registry::builder()
        .job(JOB, handler)
        .build()
        .map_err(|error| CliError::invalid(error.to_string()))
}

/// One task each 20 ms; from just before the submit to the handler's first line.
pub(super) async fn latency(bench: &Bench, place: &Place) -> Result<Report, CliError> {
    let tasks = bench.tasks(250);
    let begin = Instant::now();
    let latencies = Arc::new(Mutex::new(Latencies::new()));
    let registry = {
        let latencies = latencies.clone();
        noting(move |submitted_us| {
            let waited = begin
                .elapsed()
                .saturating_sub(Duration::from_micros(submitted_us));
            latencies
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .record(waited);
        })?
    };
    let node = place
        .node("latency", Some((bench.slots(), registry)))
        .await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    for _ in 0..tasks {
        ticks.tick().await;
        let now_us = u64::try_from(begin.elapsed().as_micros()).unwrap_or(0);
        for answer in node.frontend().submit(vec![place.task(&job, now_us)]).await {
            answer?;
        }
    }
    until_finished(&node, tasks).await?;
    let elapsed = started.elapsed();
    place.stop(node).await?;
    let mut report = bench.report(tasks, bench.slots());
    report.db_bytes = place.db_bytes("latency");
    report.rss_kib = rss_peak_kib();
    let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(report.measured(elapsed, &latencies))
}

/// Tasks two seconds ahead, 5 ms apart; by how much each starts after its time, and how many before it.
pub(super) async fn schedule(bench: &Bench, place: &Place) -> Result<Report, CliError> {
    let tasks = bench.tasks(200);
    let seen = Arc::new(Mutex::new((Latencies::new(), 0_u32)));
    let registry = {
        let seen = seen.clone();
        noting(move |due_ms| {
            let now_ms = u64::try_from(SystemClock.now().millis()).unwrap_or(0);
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match now_ms.checked_sub(due_ms) {
                Some(late_ms) => seen.0.record(Duration::from_millis(late_ms)),
                None => seen.1 += 1,
            }
        })?
    };
    let node = place
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
            run_at: Some(due),
            ..place.task(&job, number)
        };
        for answer in node.frontend().submit(vec![task]).await {
            answer?;
        }
    }
    until_finished(&node, tasks).await?;
    let elapsed = started.elapsed();
    place.stop(node).await?;
    let mut report = bench.report(tasks, bench.slots());
    report.db_bytes = place.db_bytes("schedule");
    report.rss_kib = rss_peak_kib();
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    report.more.insert("early", f64::from(seen.1));
    Ok(report.measured(elapsed, &seen.0))
}
