//! Enqueue scenarios: how many submits per second are acknowledged, each after its commit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_api::{Call, Frontend, operation::Submit};
use dueline_domain::{Handler, JobName, Policy};
use dueline_runtime::TaskGroup;
use tokio::{sync::mpsc, time::Instant};

use super::{
    Bench, BenchReport, Latencies, rss_peak_kib,
    target::{BenchTarget, JOB, put_job},
};
use crate::exit::CliError;

/// `callers` concurrent callers, each of which submits one task after the other.
pub(super) async fn callers(
    bench: &Bench,
    target: &BenchTarget,
    callers: u32,
) -> Result<BenchReport, CliError> {
    let tasks = bench.tasks(100_000);
    let node = target.node("enqueue", None).await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let started = Instant::now();
    let latencies = submit(target, &node.frontend(), &job, tasks, callers).await?;
    let elapsed = started.elapsed();
    let mut report = bench.report(tasks, callers);
    report.db_bytes = target.db_bytes("enqueue");
    target.stop(node).await?;
    report.rss_kib = rss_peak_kib();
    Ok(report.measured(elapsed, &latencies))
}

/// Submits `tasks` tasks with `callers` concurrent callers and returns the latency of each submit.
pub(super) async fn submit(
    target: &BenchTarget,
    frontend: &Arc<dyn Frontend>,
    job: &JobName,
    tasks: u64,
    callers: u32,
) -> Result<Latencies, CliError> {
    let next = Arc::new(AtomicU64::new(0));
    let (sender, mut results) = mpsc::unbounded_channel();
    let group = TaskGroup::new();
    for _ in 0..callers {
        let (frontend, job, next, sender) =
            (frontend.clone(), job.clone(), next.clone(), sender.clone());
        let payload = target.payload(0);
        group.spawn_infallible("caller", async move {
            let mut latencies = Latencies::new();
            let mut failure = None;
            while failure.is_none() && next.fetch_add(1, Ordering::Relaxed) < tasks {
                let task = new_task(&job, payload.clone());
                let started = Instant::now();
                let submit = Submit { tasks: vec![task] };
                let answer = frontend.call(&Call::default(), submit).await;
                latencies.record(started.elapsed());
                failure = match answer {
                    Ok(answers) => answers.into_iter().find_map(Result::err),
                    Err(error) => Some(error),
                };
            }
            let _ = sender.send((latencies, failure));
        });
    }
    drop(sender);
    let mut all = Latencies::new();
    while let Some((latencies, failure)) = results.recv().await {
        all.add(&latencies);
        if let Some(error) = failure {
            return Err(error.into());
        }
    }
    Ok(all)
}

fn new_task(job: &JobName, payload: bytes::Bytes) -> dueline_domain::NewTask {
    use dueline_ports::{Clock as _, Rng as _};
    let id = dueline_runtime::SystemRng.task_id(dueline_runtime::SystemClock.now());
    dueline_domain::NewTask::now(id, job.clone(), payload)
}

/// One caller that submits a batch at a time.
pub(super) async fn bulk(bench: &Bench, target: &BenchTarget) -> Result<BenchReport, CliError> {
    let tasks = bench.tasks(200_000);
    let batch = u64::try_from(bench.batch.clamp(1, 10_000)).unwrap_or(1);
    let node = target.node("bulk", None).await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let frontend = node.frontend();
    let mut latencies = Latencies::new();
    let started = Instant::now();
    let mut number = 0;
    while number < tasks {
        let end = (number + batch).min(tasks);
        let new = (number..end)
            .map(|number| target.task(&job, number))
            .collect();
        let submitted = Instant::now();
        for answer in frontend
            .call(&Call::default(), Submit { tasks: new })
            .await?
        {
            answer?;
        }
        latencies.record(submitted.elapsed());
        number = end;
    }
    let elapsed: Duration = started.elapsed();
    let mut report = bench.report(tasks, 1);
    report.db_bytes = target.db_bytes("bulk");
    #[expect(clippy::cast_precision_loss, reason = "a batch is small")]
    report.more.insert("batch", batch as f64);
    target.stop(node).await?;
    report.rss_kib = rss_peak_kib();
    Ok(report.measured(elapsed, &latencies))
}
