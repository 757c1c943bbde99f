//! The retry scenario: failures per second in a small table and in a large one.

use dueline_api::{Call, ErrorReason, operation::GetJobStats};
use std::time::Duration;

use dueline_domain::{Backoff, Handler, Policy, RetryPolicy, StateKind};
use dueline_executor::{Failure, Registry, Success, handler_fn};
use tokio::time::Instant;

use super::{
    Bench, BenchReport,
    drain::until_finished,
    rss_peak_kib,
    target::{BenchTarget, JOB, fill, put_job},
};
use crate::exit::CliError;

/// The number of tasks that fail.
const FAILURES: u64 = 20_000;

/// Runs tasks that fail once and are not retried during the benchmark, first in a table with a thousand rows of another
/// job, then in a table with many.
pub(super) async fn retry(bench: &Bench, target: &BenchTarget) -> Result<BenchReport, CliError> {
    let many = bench.tasks(100_000);
    let mut rates = Vec::new();
    for (name, rows) in [("few", 1_000), ("many", many)] {
        rates.push(failures_per_s(bench, target, name, rows).await?);
    }
    let mut report = bench.report(FAILURES, bench.slots());
    report.db_bytes = target.db_bytes("many");
    report.rss_kib = rss_peak_kib();
    report.rate_per_s = rates[1].round();
    report.more.insert("few_rate_per_s", rates[0].round());
    report
        .more
        .insert("ratio", (rates[1] / rates[0] * 1_000.0).round() / 1_000.0);
    Ok(report)
}

async fn failures_per_s(
    bench: &Bench,
    target: &BenchTarget,
    name: &str,
    rows: u64,
) -> Result<f64, CliError> {
    let failing = handler_fn(|_task| async { Err::<Success, _>(Failure::from("on purpose")) });
    let registry = Registry::builder()
        .job(JOB, failing)
        .build()
        .map_err(|error| CliError::invalid(error.to_string()))?;
    let node = target.node(name, Some((bench.slots(), registry))).await?;
    let policy = Policy {
        retry: RetryPolicy {
            standard: Backoff::new(
                Duration::from_secs(1_000),
                1.0,
                0.0,
                Duration::from_secs(1_000),
            )
            .map_err(|error| CliError::invalid(error.to_string()))?,
            ..RetryPolicy::default()
        },
        ..Policy::default()
    };
    let filler = put_job(&node, "filler", Handler::worker(), Policy::default()).await?;
    let hour = Some(Duration::from_secs(3_600));
    fill(target, &node.frontend(), &filler, rows, hour).await?;
    let job = put_job(&node, JOB, Handler::worker(), policy).await?;
    let started = Instant::now();
    fill(target, &node.frontend(), &job, FAILURES, None).await?;
    until_finished(&node, FAILURES).await?;
    let elapsed = started.elapsed();
    let stats = node
        .frontend()
        .call(&Call::default(), GetJobStats { name: job.clone() })
        .await?;
    let retriable = stats.by_state.get(&StateKind::Retriable).copied();
    if retriable != Some(FAILURES) {
        let retriable = retriable.unwrap_or_default();
        let text = format!("{retriable} instead of {FAILURES} tasks are retriable");
        return Err(CliError::new(
            dueline_api::ErrorKind::Internal,
            ErrorReason::WrongResult,
            text,
        ));
    }
    target.stop(node).await?;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    Ok(FAILURES as f64 / elapsed.as_secs_f64())
}
