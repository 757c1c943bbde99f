//! Polls the controller for tasks.

use std::{sync::Arc, time::Duration};

use dueline_api::{ApiError, Assignment, PollRequest};
use dueline_runtime::Shutdown;
use tokio::time::Instant;

use crate::{Executor, pool::FreeWeight, run::Run, runner::fill_slots};

/// Longest wait of a poll while something runs. Free weight may grow while such a poll waits, and a task that is too
/// heavy for the polled weight must not wait until the poll ends.
const WAIT_BUSY: Duration = Duration::from_secs(1);
/// Longest wait of a poll for less weight than that of the heaviest task received so far.
const WAIT_TIGHT: Duration = Duration::from_millis(50);
/// Timeout of a poll, in addition to its wait.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Wait after the first poll that failed, or that returned empty before its wait was over; doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(2);
/// Longest wait after a failed poll.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Longest wait after a poll that returned empty too early.
const EMPTY_MAX: Duration = Duration::from_millis(100);

/// Keeps the pool filled until intake stops. A poll that is dropped then may leave claimed tasks behind; they are
/// enqueued again when the worker deregisters.
pub(crate) async fn poll(executor: Arc<Executor>, shutdown: Shutdown) {
    let mut heaviest = 1;
    let mut run_number = 0;
    let (mut failures, mut empties) = (0_u32, 0_u32);
    loop {
        let free = tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            free = weight_to_poll_for(&executor) => free,
        };
        let polled_at = Instant::now();
        let request = request(&executor, free, heaviest);
        let wait = request.wait;
        let call = executor.controller.poll(request);
        let answer = tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            answer = tokio::time::timeout(wait + CALL_MAX, call) => answer,
        };
        let answer = answer.unwrap_or_else(|_| Err(ApiError::unavailable("no answer in time")));
        let pause = match answer {
            Ok(tasks) if tasks.is_empty() => {
                failures = 0;
                let is_early = polled_at.elapsed() < wait / 2;
                empties = if is_early { empties + 1 } else { 0 };
                if empties == 0 {
                    continue;
                }
                doubled(empties).min(EMPTY_MAX)
            }
            Ok(tasks) => {
                (failures, empties) = (0, 0);
                for task in &tasks {
                    heaviest = heaviest.max(u32::from(task.weight.get()));
                }
                let times = PollTimes {
                    polled_at,
                    wait,
                    answered_at: Instant::now(),
                };
                add_runs(&executor, tasks, times, &mut run_number).await;
                continue;
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(%error, "failed to poll for tasks; trying again");
                }
                let wait = doubled(failures).min(RETRY_MAX);
                wait.mul_f64(0.5 + executor.rng.jitter().get() / 2.0)
            }
        };
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Waits until there is weight to poll for and this host can run tasks. Cancel safe.
async fn weight_to_poll_for(executor: &Executor) -> FreeWeight {
    loop {
        let free = executor.pool.free_weight().await;
        if !executor.host.is_paused() {
            return free;
        }
        executor.host.over().await;
    }
}

fn request(executor: &Executor, free: FreeWeight, heaviest: u32) -> PollRequest {
    let config = &executor.config;
    let wait = if free.is_all {
        config.poll_wait
    } else if free.weight < heaviest {
        config.poll_wait.min(WAIT_TIGHT)
    } else {
        config.poll_wait.min(WAIT_BUSY)
    };
    let worker = &executor.registration;
    PollRequest {
        worker: worker.worker.clone(),
        jobs: worker.jobs.clone(),
        handlers: worker.handlers.clone(),
        tasks_max: free.weight as usize,
        weight_max: free.weight,
        task_weight_max: config.concurrency,
        wait,
        start: free.start,
    }
}

/// The times of a poll that returned tasks.
#[derive(Clone, Copy)]
struct PollTimes {
    polled_at: Instant,
    wait: Duration,
    answered_at: Instant,
}

impl PollTimes {
    /// The time from which the claim of `task` counts here.
    fn claimed_at(self, task: &Assignment) -> Instant {
        let waited = if task.started {
            // The run's lease began with the claim, so this time must not be later than the claim, however long the
            // answer took.
            task.waited
        } else {
            // The controller may have claimed as late as the end of the poll's wait. The time beyond the wait was
            // transport, during which the claim aged.
            self.wait
        };
        self.answered_at.min(self.polled_at + waited)
    }
}

async fn add_runs(
    executor: &Arc<Executor>,
    tasks: Vec<Assignment>,
    times: PollTimes,
    run_number: &mut u64,
) {
    let mut runs = Vec::with_capacity(tasks.len());
    let mut refused = Vec::new();
    for task in tasks {
        *run_number += 1;
        let claimed_at = times.claimed_at(&task);
        let run = Run::new(*run_number, task, claimed_at, executor.context.clone());
        if run.weight() > executor.config.concurrency {
            tracing::error!(
                job.name = %run.task.job, task.id = %run.task.id, task.weight = run.weight(),
                "received a task heavier than this executor can ever run; it is abandoned",
            );
            refused.push(Arc::new(run));
        } else {
            runs.push(Arc::new(run));
        }
    }
    refused.append(&mut executor.pool.add(runs));
    executor.context.abandon(refused).await;
    fill_slots(executor).await;
}

fn doubled(times: u32) -> Duration {
    RETRY_MIN.saturating_mul(1 << times.saturating_sub(1).min(16))
}
