//! Submits: how many a second, each acknowledged when it is durable.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_api::Frontend;
use dueline_domain::{Handler, JobName, Policy};
use dueline_runtime::TaskGroup;
use tokio::{sync::mpsc, time::Instant};

use super::{
    Bench, Latencies, Report,
    place::{JOB, Place, put_job},
    rss_peak_kib,
};
use crate::exit::CliError;

/// `callers` tasks of the runtime that each wait for one submit after the other.
pub(super) async fn callers(
    bench: &Bench,
    place: &Place,
    callers: u32,
) -> Result<Report, CliError> {
    let tasks = bench.tasks(100_000);
    let node = place.node("enqueue", None).await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let started = Instant::now();
    let latencies = submit(place, &node.frontend(), &job, tasks, callers).await?;
    let elapsed = started.elapsed();
    let mut report = bench.report(tasks, callers);
    report.db_bytes = place.db_bytes("enqueue");
    place.stop(node).await?;
    report.rss_kib = rss_peak_kib();
    Ok(report.measured(elapsed, &latencies))
}

/// Submits `tasks` tasks by `callers` callers; how long each submit took.
pub(super) async fn submit(
    place: &Place,
    frontend: &Arc<dyn Frontend>,
    job: &JobName,
    tasks: u64,
    callers: u32,
) -> Result<Latencies, CliError> {
    let next = Arc::new(AtomicU64::new(0));
    let (done, mut ended) = mpsc::unbounded_channel();
    let group = TaskGroup::new();
    for _ in 0..callers {
        let (frontend, job, next, done) =
            (frontend.clone(), job.clone(), next.clone(), done.clone());
        let payload = place.payload(0);
        group.spawn_infallible("caller", async move {
            let mut latencies = Latencies::new();
            let mut failure = None;
            while failure.is_none() && next.fetch_add(1, Ordering::Relaxed) < tasks {
                let task = one(&job, payload.clone());
                let started = Instant::now();
                let answer = frontend.submit(vec![task]).await;
                latencies.record(started.elapsed());
                failure = answer.into_iter().find_map(Result::err);
            }
            let _ = done.send((latencies, failure));
        });
    }
    drop(done);
    let mut all = Latencies::new();
    while let Some((latencies, failure)) = ended.recv().await {
        all.add(&latencies);
        if let Some(error) = failure {
            return Err(error.into());
        }
    }
    Ok(all)
}

fn one(job: &JobName, payload: bytes::Bytes) -> dueline_domain::NewTask {
    use dueline_ports::{Clock as _, Rng as _};
    let id = dueline_runtime::SystemRng.task_id(dueline_runtime::SystemClock.now());
    dueline_domain::NewTask::now(id, job.clone(), payload)
}

/// One caller that hands in a batch at a time.
pub(super) async fn bulk(bench: &Bench, place: &Place) -> Result<Report, CliError> {
    let tasks = bench.tasks(200_000);
    let batch = u64::try_from(bench.batch.clamp(1, 10_000)).unwrap_or(1);
    let node = place.node("bulk", None).await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let frontend = node.frontend();
    let mut latencies = Latencies::new();
    let started = Instant::now();
    let mut number = 0;
    while number < tasks {
        let end = (number + batch).min(tasks);
        let new = (number..end)
            .map(|number| place.task(&job, number))
            .collect();
        let submitted = Instant::now();
        for answer in frontend.submit(new).await {
            answer?;
        }
        latencies.record(submitted.elapsed());
        number = end;
    }
    let elapsed: Duration = started.elapsed();
    let mut report = bench.report(tasks, 1);
    report.db_bytes = place.db_bytes("bulk");
    #[expect(clippy::cast_precision_loss, reason = "a batch is small")]
    report.more.insert("batch", batch as f64);
    place.stop(node).await?;
    report.rss_kib = rss_peak_kib();
    Ok(report.measured(elapsed, &latencies))
}
