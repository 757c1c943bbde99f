//! Runs handlers in slots.

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use dueline_api::Action;
use dueline_domain::{Outcome, RetryClass};
use dueline_runtime::panic_text;
use dueline_trace::{Began, Step, TaskSpan, within};
use futures_util::{FutureExt as _, poll};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    Executor, Failure, Handler, RunningTask, StopReason,
    pool::EndedRun,
    run::{Run, RunReport},
    verdict::{HandlerEnd, Verdict, verdict},
};

/// One busy slot: runs `first` and then claim after claim, and ends when no claim fits.
async fn run_slot(executor: Arc<Executor>, first: Arc<Run>) {
    let mut next = Some((first, Instant::now()));
    while let Some((run, since)) = next {
        run_one(&executor, &run).await;
        let weight = run.weight();
        next = next_run(&executor, Some(EndedRun { weight, since })).await;
    }
}

/// Starts claims in free slots until none fits.
pub(crate) async fn fill_slots(executor: &Arc<Executor>) {
    while let Some((run, _)) = next_run(executor, None).await {
        spawn(executor, run);
    }
}

/// The next run, and since when it occupies its slot.
async fn next_run(
    executor: &Arc<Executor>,
    ended: Option<EndedRun>,
) -> Option<(Arc<Run>, Instant)> {
    let now = Instant::now();
    let next = executor.pool.next(ended, now);
    let mut stale = next.stale;
    let mut more = next.more && ended.is_some();
    // The end of a heavy run may free weight for several light ones.
    while more {
        let extra = executor.pool.next(None, Instant::now());
        stale.extend(extra.stale);
        more = extra.more;
        if let Some(run) = extra.run {
            spawn(executor, run);
        }
    }
    if !stale.is_empty() {
        executor.context.abandon(stale).await;
    }
    next.run.map(|run| (run, now))
}

fn spawn(executor: &Arc<Executor>, run: Arc<Run>) {
    let slot = run_slot(executor.clone(), run);
    executor.tasks.spawn_infallible("slot", slot);
}

async fn run_one(executor: &Executor, run: &Arc<Run>) {
    if run.task.started {
        match run.stop_reason() {
            None => {}
            // The fixed limit of a started run is over. Abandoned, the task would have as little time on the next
            // worker, and might go round for ever. So nothing is reported: the lease ends soon, which uses a try.
            Some(StopReason::Timeout) => return,
            Some(_) => return end_unbegun(executor, run).await,
        }
    } else if run.task.start_first && !start_is_durable(executor, run).await {
        return;
    }
    executor.started.fetch_add(1, Ordering::Relaxed);
    run.begin();
    let span = start_span(run);
    let ended = match executor.registry.find(&run.task) {
        Some(handler) => within(span.as_ref(), run_handler(executor, run, &**handler)).await,
        None => HandlerEnd::Returned(Err(no_handler(run))),
    };
    match &ended {
        HandlerEnd::Returned(Err(Failure::Host { error })) => {
            executor.host.fault(error, executor.rng.jitter());
        }
        _ => executor.host.recovered(),
    }
    let verdict = verdict(ended, run.stop_reason());
    if let Some(span) = span {
        record_end(&span, &verdict);
    }
    if run.end().is_err() {
        // The task is lost, or the handler has finished it explicitly.
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
    executor
        .context
        .report(RunReport::new(run.clone(), action))
        .await;
}

/// Stores the start before the handler begins, so that a crash counts as a try. Used for the last try.
async fn start_is_durable(executor: &Executor, run: &Arc<Run>) -> bool {
    let (reply, answer) = oneshot::channel();
    let start = RunReport::with_reply(run.clone(), Action::Start, reply);
    executor.context.report(start).await;
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
    end_unbegun(executor, run).await;
    false
}

/// Ends a run whose handler never began and must not begin any more.
async fn end_unbegun(executor: &Executor, run: &Arc<Run>) {
    let action = match run.stop_reason() {
        Some(StopReason::Lost) => return,
        // A fixed limit is over. The next worker would have as little time, so this counts as a try: otherwise the task
        // might go round for ever.
        Some(StopReason::Timeout) => match verdict(HandlerEnd::Killed, run.stop_reason()) {
            Verdict::Finish(outcome) => Action::Finish {
                started_at: None,
                outcome,
            },
            Verdict::Abandon => Action::Abandon,
            Verdict::Nothing => return,
        },
        // The handler never ran. Abandoning also cancels a task whose cancellation was requested.
        Some(StopReason::Expired | StopReason::Cancelled | StopReason::Shutdown) | None => {
            Action::Abandon
        }
    };
    if run.end().is_ok() {
        executor
            .context
            .report(RunReport::new(run.clone(), action))
            .await;
    }
}

async fn run_handler(executor: &Executor, run: &Arc<Run>, handler: &dyn Handler) -> HandlerEnd {
    let task = RunningTask::new(run.clone());
    let mut running = match std::panic::catch_unwind(AssertUnwindSafe(|| handler.run(&task))) {
        Ok(running) => running,
        Err(panic) => return HandlerEnd::Panicked(panic_text(&*panic).to_owned()),
    };
    let ended = {
        let mut handler = AssertUnwindSafe(running.as_mut()).catch_unwind();
        // Most short handlers return at the first poll and need neither a watch nor a start report.
        match poll!(&mut handler) {
            std::task::Poll::Ready(ended) => Some(ended),
            std::task::Poll::Pending => {
                executor.watch(run);
                // Sending the start waits while the reporter's channel is full; the handler continues meanwhile.
                let start = RunReport::new(run.clone(), Action::Start);
                let mut start = pin!(executor.context.report(start));
                let mut is_sent = run.task.started;
                let ended = loop {
                    tokio::select! {
                        biased;
                        ended = &mut handler => break Some(ended),
                        () = &mut start, if !is_sent => is_sent = true,
                        () = run.grace_is_over() => break None,
                    }
                };
                executor.unwatch(run);
                ended
            }
        }
    };
    // Dropping the future runs the handler's code, which may panic.
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| drop(running)));
    match (ended, dropped) {
        (Some(Ok(result)), Ok(())) => HandlerEnd::Returned(result),
        (Some(Err(panic)), _) | (Some(Ok(_)), Err(panic)) => {
            HandlerEnd::Panicked(panic_text(&*panic).to_owned())
        }
        (None, _) => {
            tracing::warn!(
                job.name = %run.task.job, task.id = %run.task.id,
                reason = run.stop_reason().map_or("", |reason| reason.name()),
                "the handler did not stop within its grace and was dropped",
            );
            HandlerEnd::Killed
        }
    }
}

/// The span of a run, which lasts as long as its handler.
fn start_span(run: &Run) -> Option<TaskSpan> {
    let (task, trace) = (&run.task, run.task.trace.as_deref());
    let span = TaskSpan::start(Step::Run, trace, &task.job, &task.id, Began::now())?;
    span.set("dueline.attempt", i64::from(task.attempt));
    span.set("dueline.handler", task.handler.kind.to_string());
    run.set_trace(span.traceparent());
    Some(span)
}

fn record_end(span: &TaskSpan, verdict: &Verdict) {
    let outcome = match verdict {
        Verdict::Finish(Outcome::Success { .. }) => "success",
        Verdict::Finish(Outcome::Cancelled) => "cancelled",
        Verdict::Finish(Outcome::Retriable { error, .. }) => {
            span.failed("retriable", error.to_string());
            "retriable"
        }
        Verdict::Finish(Outcome::Fatal { error }) => {
            span.failed("fatal", error.to_string());
            "fatal"
        }
        Verdict::Abandon => "abandoned",
        Verdict::Nothing => "lost",
    };
    span.set("dueline.outcome", outcome);
}

fn no_handler(run: &Run) -> Failure {
    let (job, kind) = (&run.task.job, &run.task.handler.kind);
    let error = format!("this executor has no handler for job '{job}' (handler kind '{kind}')");
    Failure::retriable(RetryClass::Slow, error)
}
