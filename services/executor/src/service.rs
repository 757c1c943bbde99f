//! Runs an executor, from the first registration to the deregistration.

use std::{sync::Arc, time::Duration};

use dueline_runtime::{ServiceError, Shutdown};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    Executor, heartbeats, poll,
    reporter::{Reporter, ReporterInbox},
};

/// How long each of the final calls may take once work must stop: the last reports, and the deregistration.
const FINAL_CALLS_MAX: Duration = Duration::from_secs(5);

/// Runs the executor until shutdown and until all its runs are reported, or until a part of it fails.
///
/// The first stage of `shutdown` stops polling and abandons the claims that have not begun. The second stage stops the
/// runs; those that have not ended after the kill grace are dropped and abandoned. Dropping the future starts both
/// stages at once; they then run in the background.
pub async fn run(executor: Arc<Executor>, shutdown: Shutdown) -> Result<(), ServiceError> {
    let Some(reports) = executor.take_inbox() else {
        return Err(failure("was run twice; create an executor for each run"));
    };
    let shutdown = shutdown.child();
    let _stop = StopOnDrop(shutdown.clone(), executor.clone());
    let (heartbeats_tx, heartbeats) = mpsc::channel(4);
    let (flush, reported) = (CancellationToken::new(), CancellationToken::new());
    let end = CancellationToken::new();
    let _end = end.clone().drop_guard();
    let _flush = flush.clone().drop_guard();

    let tasks = &executor.tasks;
    let reporter = Reporter::new(
        executor.controller.clone(),
        executor.rng.clone(),
        executor.finished.clone(),
        ReporterInbox {
            reports,
            heartbeats,
        },
    );
    tasks.spawn_infallible("reporter", {
        let (flush, end, is_done) = (flush.clone(), end.clone(), reported.clone().drop_guard());
        async move {
            tokio::select! {
                biased;
                () = reporter.run(flush) => {}
                () = end.cancelled() => {}
            }
            drop::<DropGuard>(is_done);
        }
    });
    let (interval_tx, mut interval) = watch::channel(None);
    tasks.spawn_infallible(
        "registration",
        heartbeats::register(executor.clone(), interval_tx, end.clone()),
    );
    tasks.spawn_infallible("heartbeats", {
        heartbeats::heartbeat(
            executor.clone(),
            heartbeats_tx,
            interval.clone(),
            end.clone(),
        )
    });
    let ended = serve(&executor, &shutdown, &mut interval).await;
    if ended.is_err() {
        shutdown.stop_work();
        executor.stop_runs();
    }
    flush.cancel();
    if ended.is_ok() {
        finish_reports(&shutdown, &reported).await;
    }
    end.cancel();
    deregister(&executor).await;
    let stopped = tokio::time::timeout(FINAL_CALLS_MAX, tasks.wait()).await;
    ended?;
    stopped.unwrap_or(Ok(()))
}

/// Polls for tasks and runs them until shutdown, and then until nothing runs.
async fn serve(
    executor: &Arc<Executor>,
    shutdown: &Shutdown,
    interval: &mut watch::Receiver<Option<Duration>>,
) -> Result<(), ServiceError> {
    let work = async {
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => {}
            // A worker that is not registered must not own tasks, so polling begins after the registration.
            () = async { drop(interval.wait_for(Option::is_some).await) } => {
                poll::poll(executor.clone(), shutdown.clone()).await;
            }
        }
        let unused = executor.pool.close();
        executor.context.abandon(unused).await;
        executor.pool.until_idle().await;
    };
    let stop = async {
        shutdown.work_stopped().await;
        executor.stop_runs();
        tokio::time::sleep(executor.config.kill_grace + FINAL_CALLS_MAX).await;
    };
    tokio::select! {
        biased;
        error = executor.tasks.failed() => Err(error),
        () = work => Ok(()),
        () = stop => Err(failure(
            "did not become idle: handlers block their threads, or the reporter accepts no reports",
        )),
    }
}

/// Waits until the last reports are durable, but no longer than [`FINAL_CALLS_MAX`] once work must stop.
async fn finish_reports(shutdown: &Shutdown, reported: &CancellationToken) {
    let too_late = async {
        shutdown.work_stopped().await;
        tokio::time::sleep(FINAL_CALLS_MAX).await;
    };
    tokio::select! {
        biased;
        () = reported.cancelled() => {}
        () = too_late => tracing::warn!("the last reports are not durable; their tasks will run again"),
    }
}

async fn deregister(executor: &Executor) {
    let call = executor
        .controller
        .deregister_worker(&executor.registration.worker);
    match tokio::time::timeout(FINAL_CALLS_MAX, call).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to deregister; the worker's leases end by their timeouts");
        }
        Err(_) => {
            tracing::warn!(
                "failed to deregister in time; the worker's leases end by their timeouts"
            );
        }
    }
}

fn failure(what: &str) -> ServiceError {
    ServiceError {
        task: "executor",
        what: what.to_owned(),
    }
}

/// Stops the runs when the future of [`run`] is dropped, so that no handler stays running.
struct StopOnDrop(Shutdown, Arc<Executor>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop_work();
        self.1.pool.close();
        self.1.stop_runs();
    }
}
