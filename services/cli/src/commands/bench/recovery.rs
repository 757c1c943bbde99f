//! The recovery scenario: how soon the tasks of a killed worker start again, with default settings.

use dueline_api::{
    Call,
    operation::{GetTask, ListTasks},
};
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
    Bench, BenchReport, Latencies, rss_peak_kib,
    target::{BenchTarget, JOB, fill, put_job, stalled},
};
use crate::exit::CliError;

/// The configuration of the handler: each task takes 200 ms.
const HANDLER_CONFIG: &str = r#"{"command": ["sleep", "0.2"]}"#;

/// A worker process, killed when this value is dropped.
struct WorkerProcess(Child);

impl WorkerProcess {
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

    /// Sends SIGKILL, so that the worker neither abandons its tasks nor deregisters.
    fn kill(&mut self) -> Result<(), CliError> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts two worker processes and kills one of them when its slots are full. Measures for each of its tasks the time
/// from the kill to the next start.
pub(super) async fn recovery(bench: &Bench, target: &BenchTarget) -> Result<BenchReport, CliError> {
    let tasks = bench.tasks(200);
    let slots = bench.slots();
    let mut config = target.config("recovery").await?;
    config.listen = Some(([127, 0, 0, 1], 0).into());
    let node = target.start(config).await?;
    let address = node.address().map(|a| format!("http://{a}"));
    let server = address.ok_or_else(|| stalled("the start"))?;
    let handler = Handler {
        kind: "exec".into(),
        config: HANDLER_CONFIG.into(),
    };
    let job = put_job(&node, JOB, handler, Policy::default()).await?;
    let mut killed = WorkerProcess::start(&server, "killed", slots)?;
    let _other = WorkerProcess::start(&server, "other", slots)?;
    let started = Instant::now();
    fill(target, &node.frontend(), &job, tasks, None).await?;
    // The worker is killed when it has tasks, and when half of their run time has passed.
    let owned_min = usize::try_from(slots).unwrap_or(usize::MAX).min(4);
    while owned_by(&node, &job, "killed").await?.len() < owned_min {
        if started.elapsed() > Duration::from_secs(30) {
            return Err(stalled("the start of the workers"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    killed.kill()?;
    let killed_at = SystemClock.now();
    let mut in_flight: BTreeMap<_, _> = owned_by(&node, &job, "killed")
        .await?
        .into_iter()
        .map(|task| (task.id, ()))
        .collect();
    let lost = in_flight.len();
    let mut latencies = Latencies::new();
    while !in_flight.is_empty() {
        if started.elapsed() > Duration::from_secs(120) {
            return Err(stalled("the recovery"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        for id in in_flight.keys().copied().collect::<Vec<_>>() {
            let task = node
                .frontend()
                .call(
                    &Call::default(),
                    GetTask {
                        job: job.clone(),
                        id,
                        wait: None,
                    },
                )
                .await?;
            if let Some(at) = restarted_at(&task, killed_at) {
                latencies.record(at.since(killed_at));
                in_flight.remove(&id);
            }
        }
    }
    let elapsed = started.elapsed();
    target.stop(node).await?;
    let mut report = bench.report(tasks, slots);
    report.db_bytes = target.db_bytes("recovery");
    report.rss_kib = rss_peak_kib();
    report.more.insert(
        "in_flight",
        f64::from(u32::try_from(lost).unwrap_or(u32::MAX)),
    );
    Ok(report.measured(elapsed, &latencies))
}

/// When a task that was reclaimed from the killed worker started again.
fn restarted_at(task: &Task, killed_at: Timestamp) -> Option<Timestamp> {
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
    let page = node
        .frontend()
        .call(&Call::default(), ListTasks(query))
        .await?;
    let is_owner = |task: &Task| {
        let owner = task.lease().map(|lease| lease.worker.as_str());
        owner.is_some_and(|owner| owner.starts_with(worker))
    };
    Ok(page.tasks.into_iter().filter(is_owner).collect())
}
