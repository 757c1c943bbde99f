//! The scenario of schedules that all fire at the same second.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_api::{Call, Frontend, operation::PutSchedule};
use dueline_domain::{
    Handler, JobName, Overlap, Policy, RuleSpec, ScheduleName, ScheduleSpec, TaskTemplate,
    Timestamp,
};
use dueline_ports::Clock as _;
use dueline_runtime::{SystemClock, TaskGroup};
use tokio::{sync::mpsc, time::Instant};

use super::{
    Bench, BenchReport,
    drain::until_finished,
    latency::Delays,
    rss_peak_kib,
    target::{BenchTarget, JOB, put_job},
};
use crate::exit::CliError;

/// Callers that store schedules at once.
const CALLERS: u32 = 64;
/// Time until the schedules fire, for each thousand of them, and at least.
const FIRE_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// Stores schedules that fire once, all at the same time. Measures how long after that time each task starts, and counts
/// the tasks that start before it. The rate is that of tasks finished from then on.
pub(super) async fn schedules(
    bench: &Bench,
    target: &BenchTarget,
) -> Result<BenchReport, CliError> {
    let count = bench.tasks(10_000);
    let (registry, delays) = Delays::recorded()?;
    let node = target
        .node("schedules", Some((bench.slots(), registry)))
        .await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let thousands = u32::try_from(count / 1_000).unwrap_or(u32::MAX);
    let wait = FIRE_AFTER.0.saturating_mul(thousands).max(FIRE_AFTER.1);
    let fire_at = SystemClock.now().after(wait);
    let started = Instant::now();
    put(target, &node.frontend(), &job, count, fire_at).await?;
    let stored_in = started.elapsed();
    if SystemClock.now() >= fire_at {
        let text = format!(
            "{count} schedules took {stored_in:.1?} to store, more than until their firing; use fewer --tasks"
        );
        return Err(CliError::invalid(text));
    }
    tokio::time::sleep(fire_at.since(SystemClock.now())).await;
    let fired = Instant::now();
    until_finished(&node, count).await?;
    let elapsed = fired.elapsed();
    target.stop(node).await?;
    let mut report = bench.report(count, bench.slots());
    report.db_bytes = target.db_bytes("schedules");
    report.rss_kib = rss_peak_kib();
    let delays = delays.lock().unwrap_or_else(PoisonError::into_inner);
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of a benchmark are small"
    )]
    let puts_per_s = (count as f64 / stored_in.as_secs_f64()).round();
    report.more.extend([
        ("early", f64::from(delays.early)),
        ("schedules_stored_per_s", puts_per_s),
    ]);
    Ok(report.measured(elapsed, &delays.late))
}

async fn put(
    target: &BenchTarget,
    frontend: &Arc<dyn Frontend>,
    job: &JobName,
    count: u64,
    fire_at: Timestamp,
) -> Result<(), CliError> {
    let number = u64::try_from(fire_at.millis()).unwrap_or(0);
    let spec = ScheduleSpec {
        rule: RuleSpec {
            timing: "@every 1d".to_owned(),
            anchor: Some(fire_at),
            ..RuleSpec::default()
        },
        overlap: Overlap::Allow,
        firings_max: Some(1),
        template: TaskTemplate {
            payload: target.payload(number),
            ..TaskTemplate::default()
        },
        ..ScheduleSpec::default()
    };
    let next = Arc::new(AtomicU64::new(0));
    let (sender, mut failures) = mpsc::unbounded_channel();
    let group = TaskGroup::new();
    for _ in 0..CALLERS {
        let (frontend, job, next, sender) =
            (frontend.clone(), job.clone(), next.clone(), sender.clone());
        let spec = spec.clone();
        group.spawn_infallible("caller", async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Ok(name) = ScheduleName::parse(&format!("s{number}")) else {
                    return;
                };
                if number >= count {
                    return;
                }
                let put = PutSchedule {
                    job: job.clone(),
                    name,
                    spec: spec.clone(),
                };
                if let Err(error) = frontend.call(&Call::default(), put).await {
                    let _ = sender.send(error);
                    return;
                }
            }
        });
    }
    drop(sender);
    match failures.recv().await {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
