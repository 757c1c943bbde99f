//! Asks for work.

use std::{sync::Arc, time::Duration};

use dueline_api::{ApiError, Assignment, NextWork};
use dueline_runtime::Shutdown;
use tokio::time::Instant;

use crate::{
    Executor,
    pool::Room,
    run::Run,
    runner::{fill_slots, give_back},
};

/// While something runs, the room grows behind the back of a call that waits. Calls are short then, so that a task
/// too heavy for the room asked for is not kept waiting by a call that could not take it.
const WAIT_BUSY: Duration = Duration::from_secs(1);
/// The same when such tasks have been seen.
const WAIT_TIGHT: Duration = Duration::from_millis(50);
/// A call that takes this much longer than it was to wait has failed.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Wait after the first call that failed, or that came back empty too soon; it doubles each time.
const RETRY_MIN: Duration = Duration::from_millis(2);
/// Longest wait after a call that failed.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Longest wait after a call that came back empty too soon.
const EMPTY_MAX: Duration = Duration::from_millis(100);

/// Keeps the pool filled until intake stops. Dropping the call under way may leave claims without a runner; they
/// are handed on when the executor leaves.
pub(crate) async fn fetch(executor: Arc<Executor>, shutdown: Shutdown) {
    let mut heaviest = 1;
    let mut run_number = 0;
    let (mut failures, mut empties) = (0_u32, 0_u32);
    loop {
        let room = tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            room = executor.pool.room() => room,
        };
        let asked = Instant::now();
        let ask = ask(&executor, room, heaviest);
        let wait_asked = ask.wait;
        let answer = tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            answer = tokio::time::timeout(wait_asked + CALL_MAX, executor.work.next(ask)) => answer,
        };
        let answer = answer.unwrap_or_else(|_| Err(ApiError::unavailable("no answer in time")));
        let pause = match answer {
            Ok(tasks) if tasks.is_empty() => {
                failures = 0;
                let is_early = asked.elapsed() < wait_asked / 2;
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
                let call = Call {
                    asked,
                    wait: wait_asked,
                    answered: Instant::now(),
                };
                take_in(&executor, tasks, call, &mut run_number).await;
                continue;
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(%error, "failed to ask for work");
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

fn ask(executor: &Executor, room: Room, heaviest: u32) -> NextWork {
    let config = &executor.config;
    let wait = if room.is_all {
        config.poll_wait
    } else if room.weight < heaviest {
        config.poll_wait.min(WAIT_TIGHT)
    } else {
        config.poll_wait.min(WAIT_BUSY)
    };
    let who = &executor.registration;
    NextWork {
        worker: who.worker.clone(),
        jobs: who.jobs.clone(),
        handlers: who.handlers.clone(),
        tasks_max: room.weight as usize,
        weight_max: room.weight,
        task_weight_max: config.concurrency,
        wait,
        start: room.start,
    }
}

/// A call that brought tasks.
#[derive(Clone, Copy)]
struct Call {
    asked: Instant,
    wait: Duration,
    answered: Instant,
}

impl Call {
    /// From when the claim of `task` counts.
    fn claimed_at(self, task: &Assignment) -> Instant {
        // The lease of a run began with the claim, so this must not be later, however long the answer took.
        let waited = if task.started {
            task.waited
        } else {
            // The call may have waited as long as it was asked to before it claimed anything; all that it took beyond
            // that was the way here, and the claims grew older on it.
            self.wait
        };
        self.answered.min(self.asked + waited)
    }
}

async fn take_in(
    executor: &Arc<Executor>,
    tasks: Vec<Assignment>,
    call: Call,
    run_number: &mut u64,
) {
    let mut runs = Vec::with_capacity(tasks.len());
    let mut refused = Vec::new();
    for task in tasks {
        *run_number += 1;
        let claimed = call.claimed_at(&task);
        let run = Run::new(*run_number, task, claimed, executor.ctx.clone());
        if run.weight() > executor.config.concurrency {
            tracing::error!(
                job.name = %run.task.job, task.id = %run.task.id, task.weight = run.weight(),
                "given a task heavier than this executor can ever run; it is given back",
            );
            refused.push(Arc::new(run));
        } else {
            runs.push(Arc::new(run));
        }
    }
    refused.append(&mut executor.pool.put(runs));
    give_back(executor, refused).await;
    fill_slots(executor).await;
}

fn doubled(times: u32) -> Duration {
    RETRY_MIN.saturating_mul(1 << times.saturating_sub(1).min(16))
}
