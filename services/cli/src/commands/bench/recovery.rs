//! How soon a killed worker's tasks start again, with default settings.

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
    time::Duration,
};

use dueline_all_in_one::Node;
use dueline_domain::{Handler, JobName, Policy, RunEnd, StateKind, Task, Timestamp};
use dueline_ports::{Clock as _, ListQuery};
use dueline_runtime::SystemClock;
use tokio::time::Instant;

use super::{
    Bench, Latencies, Report,
    place::{JOB, Place, fill, put_job, stalled},
    rss_peak_kib,
};
use crate::exit::CliError;

/// How long each task takes.
const WORK: &str = r#"{"command": ["sleep", "0.2"]}"#;

/// A worker process that does not outlive the benchmark.
struct Worker(Child);

impl Worker {
    fn start(server: &str, name: &str, slots: u32) -> Result<Self, CliError> {
        let child = Command::new(std::env::current_exe()?)
            .args(["--server", server, "worker", "run", "--worker-name", name])
            .args(["--concurrency", &slots.to_string(), "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// SIGKILL: nothing is said, nothing is given back.
    fn kill(&mut self) -> Result<(), CliError> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two worker processes; one is killed with its slots full. Each task it had counts from the kill to its next start.
pub(super) async fn recovery(bench: &Bench, place: &Place) -> Result<Report, CliError> {
    let tasks = bench.tasks(200);
    let slots = bench.slots();
    let mut config = place.config("recovery").await?;
    config.listen = Some(([127, 0, 0, 1], 0).into());
    let node = place.start(config).await?;
    let address = node.address().map(|a| format!("http://{a}"));
    let server = address.ok_or_else(|| stalled("the start"))?;
    let handler = Handler {
        kind: "exec".into(),
        config: WORK.into(),
    };
    let job = put_job(&node, JOB, handler, Policy::default()).await?;
    let mut doomed = Worker::start(&server, "doomed", slots)?;
    let _other = Worker::start(&server, "other", slots)?;
    let started = Instant::now();
    fill(place, &node.frontend(), &job, tasks, None).await?;
    // With full slots, and half of its time gone.
    let slots_full = usize::try_from(slots).unwrap_or(usize::MAX).min(4);
    while owned_by(&node, &job, "doomed").await?.len() < slots_full {
        if started.elapsed() > Duration::from_secs(30) {
            return Err(stalled("the start of the workers"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    doomed.kill()?;
    let killed_at = SystemClock.now();
    let mut in_flight: BTreeMap<_, _> = owned_by(&node, &job, "doomed")
        .await?
        .into_iter()
        .map(|task| (task.id, ()))
        .collect();
    let lost = in_flight.len();
    let mut waits = Latencies::new();
    while !in_flight.is_empty() {
        if started.elapsed() > Duration::from_secs(120) {
            return Err(stalled("the recovery"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        for id in in_flight.keys().copied().collect::<Vec<_>>() {
            let task = node.frontend().task(&job, &id, None).await?;
            if let Some(at) = started_again(&task, killed_at) {
                waits.record(at.since(killed_at));
                in_flight.remove(&id);
            }
        }
    }
    let elapsed = started.elapsed();
    place.stop(node).await?;
    let mut report = bench.report(tasks, slots);
    report.db_bytes = place.db_bytes("recovery");
    report.rss_kib = rss_peak_kib();
    report.more.insert(
        "in_flight",
        f64::from(u32::try_from(lost).unwrap_or(u32::MAX)),
    );
    Ok(report.measured(elapsed, &waits))
}

/// When a task that was taken from its dead worker began to run again.
fn started_again(task: &Task, killed_at: Timestamp) -> Option<Timestamp> {
    let was_lost = task
        .history
        .as_ref()
        .is_some_and(|history| history.runs.iter().any(|run| run.end == RunEnd::Lost));
    let runs = matches!(task.kind(), StateKind::Processing | StateKind::Succeeded);
    let at = task.started_at.filter(|at| *at >= killed_at);
    at.filter(|_| runs && (was_lost || task.losses > 0))
}

async fn owned_by(node: &Node, job: &JobName, worker: &str) -> Result<Vec<Task>, CliError> {
    let query = ListQuery {
        states: vec![StateKind::Claimed, StateKind::Processing],
        limit: 1_000,
        ..ListQuery::of(job.clone())
    };
    let page = node.frontend().tasks(query).await?;
    let is_owner = |task: &Task| {
        let owner = task.lease().map(|lease| lease.worker.as_str());
        owner.is_some_and(|owner| owner.starts_with(worker))
    };
    Ok(page.tasks.into_iter().filter(is_owner).collect())
}
