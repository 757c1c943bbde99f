//! Runs handlers.

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use dueline_api::Action;
use dueline_domain::RetryClass;
use dueline_runtime::panic_text;
use futures_util::{FutureExt as _, poll};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    Executor, Failure, Handler, RunningTask, StopReason,
    reporter::Item,
    run::Run,
    verdict::{Ended, Verdict, verdict},
};

/// One slot at work: runs `first` and then whatever fits, and ends when nothing does.
async fn work_off(executor: Arc<Executor>, first: Arc<Run>) {
    let mut next = Some(first);
    while let Some(run) = next {
        run_one(&executor, &run).await;
        next = take(&executor, Some(run.weight())).await;
    }
}

/// Puts runs into free slots until nothing fits.
pub(crate) async fn fill_slots(executor: &Arc<Executor>) {
    while let Some(run) = take(executor, None).await {
        spawn(executor, run);
    }
}

/// Gives claims back that were never begun. No try is used.
pub(crate) async fn give_back(executor: &Executor, runs: Vec<Arc<Run>>) {
    for run in runs {
        send(executor, Item::new(run, Action::Abandon)).await;
    }
}

async fn take(executor: &Arc<Executor>, ended: Option<u32>) -> Option<Arc<Run>> {
    let taken = executor.pool.take(ended, Instant::now());
    let mut stale = taken.stale;
    let mut more = taken.more && ended.is_some();
    // A heavy task has ended and left room for several light ones.
    while more {
        let extra = executor.pool.take(None, Instant::now());
        stale.extend(extra.stale);
        more = extra.more;
        if let Some(run) = extra.run {
            spawn(executor, run);
        }
    }
    if !stale.is_empty() {
        give_back(executor, stale).await;
    }
    taken.run
}

fn spawn(executor: &Arc<Executor>, run: Arc<Run>) {
    let slot = work_off(executor.clone(), run);
    executor.tasks.spawn_infallible("slot", slot);
}

async fn run_one(executor: &Executor, run: &Arc<Run>) {
    if run.task.started {
        match run.stop_reason() {
            None => {}
            // A limit that does not move: whoever takes it next has as little time as there was here, so giving it
            // back might go on for ever. It has no outcome either; its lease ends in a moment, and that uses a try.
            Some(StopReason::Timeout) => return,
            Some(_) => return give_up(executor, run).await,
        }
    } else if run.task.start_first && !start_is_durable(executor, run).await {
        return;
    }
    executor.started.fetch_add(1, Ordering::Relaxed);
    run.begin();
    let ended = match executor.registry.find(&run.task) {
        Some(handler) => run_handler(executor, run, &**handler).await,
        None => Ended::Returned(Err(no_handler(run))),
    };
    let verdict = verdict(ended, run.stop_reason());
    if run.end().is_err() {
        // Lost, or finished by an explicit call.
        return;
    }
    let action = match verdict {
        Verdict::Finish(outcome) => Action::Finish {
            started_at: run.begun_at(),
            outcome,
        },
        Verdict::Abandon => Action::Abandon,
        Verdict::Nothing => return,
    };
    send(executor, Item::new(run.clone(), action)).await;
}

/// This is the last try, so a crash must count: the start is stored before anything happens.
async fn start_is_durable(executor: &Executor, run: &Arc<Run>) -> bool {
    let (reply, answer) = oneshot::channel();
    send(
        executor,
        Item::with_reply(run.clone(), Action::Start, reply),
    )
    .await;
    executor.watch(run);
    let is_durable = tokio::select! {
        biased;
        answer = answer => matches!(answer, Ok(Ok(_))),
        _ = run.stopped() => false,
    };
    executor.unwatch(run);
    if is_durable && run.stop_reason().is_none() {
        return true;
    }
    give_up(executor, run).await;
    false
}

/// The handler never began, and must not any more.
async fn give_up(executor: &Executor, run: &Arc<Run>) {
    let action = match run.stop_reason() {
        Some(StopReason::Lost) => return,
        // A limit that does not move: whoever takes it next has as little time as there was here. It counts as a try,
        // or the task would go round for ever.
        Some(StopReason::Timeout) => match verdict(Ended::Killed, run.stop_reason()) {
            Verdict::Finish(outcome) => Action::Finish {
                started_at: None,
                outcome,
            },
            Verdict::Abandon => Action::Abandon,
            Verdict::Nothing => return,
        },
        // It never ran. A task that a user wants cancelled is cancelled by giving it back.
        Some(StopReason::Expired | StopReason::Cancelled | StopReason::Shutdown) | None => {
            Action::Abandon
        }
    };
    if run.end().is_ok() {
        send(executor, Item::new(run.clone(), action)).await;
    }
}

async fn run_handler(executor: &Executor, run: &Arc<Run>, handler: &dyn Handler) -> Ended {
    let task = RunningTask::new(run.clone());
    let mut running = match std::panic::catch_unwind(AssertUnwindSafe(|| handler.run(&task))) {
        Ok(running) => running,
        Err(panic) => return Ended::Panicked(panic_text(&*panic).to_owned()),
    };
    let ended = {
        let mut handler = AssertUnwindSafe(running.as_mut()).catch_unwind();
        // Most short handlers are done after the first poll, and for them nothing of what follows is needed.
        match poll!(&mut handler) {
            std::task::Poll::Ready(ended) => Some(ended),
            std::task::Poll::Pending => {
                executor.watch(run);
                // Handing the start over may take a while when the store is slow; the handler goes on meanwhile.
                let mut start = pin!(send(executor, Item::new(run.clone(), Action::Start)));
                let mut is_told = run.task.started;
                let ended = loop {
                    tokio::select! {
                        biased;
                        ended = &mut handler => break Some(ended),
                        () = &mut start, if !is_told => is_told = true,
                        () = run.grace_is_over() => break None,
                    }
                };
                executor.unwatch(run);
                ended
            }
        }
    };
    // What a handler drops is its own code too.
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| drop(running)));
    match (ended, dropped) {
        (Some(Ok(result)), Ok(())) => Ended::Returned(result),
        (Some(Err(panic)), _) | (Some(Ok(_)), Err(panic)) => {
            Ended::Panicked(panic_text(&*panic).to_owned())
        }
        (None, _) => {
            tracing::warn!(
                job.name = %run.task.job, task.id = %run.task.id,
                reason = run.stop_reason().map_or("", |reason| reason.name()),
                "the handler did not stop in time and was ended by force",
            );
            Ended::Killed
        }
    }
}

/// Hands a report over. The reporter outlives all slots, so this fails only while the process is being torn down.
async fn send(executor: &Executor, item: Item) {
    if executor.ctx.reports.send(item).await.is_err() {
        tracing::debug!("the reporter is gone; a report was dropped");
    }
}

fn no_handler(run: &Run) -> Failure {
    let (job, kind) = (&run.task.job, &run.task.handler.kind);
    let error = format!("this executor has no handler for job '{job}' (handler kind '{kind}')");
    Failure::retriable(RetryClass::Slow, error)
}
