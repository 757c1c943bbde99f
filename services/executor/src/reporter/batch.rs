//! One call with many reports, and what its answers mean.

use std::{sync::Arc, time::Duration};

use dueline_api::{Action, ApiError, ErrorKind, Report, Reported, Work};
use dueline_domain::{Jitter, Outcome, RetryClass, WriteId};
use tokio::time::Instant;

use super::Item;
use crate::{StopReason, verdict};

/// A call that takes longer has failed as far as we can know.
const CALL_MAX: Duration = Duration::from_secs(5);
/// First wait before a report is repeated; it doubles each time.
const RETRY_MIN: Duration = Duration::from_millis(50);
/// Longest wait before a report is repeated.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// A call that is over.
pub(super) struct Sent {
    pub(super) items: Vec<Item>,
    pub(super) answers: Vec<Result<Reported, ApiError>>,
    /// When it began: whatever the store did was later.
    pub(super) at: Instant,
    pub(super) is_fresh: bool,
}

/// What has become of a report.
pub(super) enum Settled {
    /// Nothing more is to be done.
    Done,
    /// An outcome is durable.
    Finished,
    /// The task is somebody else's.
    Lost,
    /// It must be repeated.
    Again { item: Item, after: Duration },
}

pub(super) async fn send(
    work: Arc<dyn Work>,
    items: Vec<Item>,
    is_fresh: bool,
    wait: Duration,
) -> Sent {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    let at = Instant::now();
    let mut reports = Vec::with_capacity(items.len());
    for item in &items {
        if matches!(item.action, Action::Start) {
            item.run.update_lease(|lease| lease.start_sent(at));
        }
        reports.push(Report {
            job: item.run.task.job.clone(),
            id: item.run.task.id,
            token: item.run.task.token,
            // The reporter names each before it comes here.
            write: item.write.unwrap_or(WriteId::from_random(0)),
            action: item.action.clone(),
        });
    }
    let answered = tokio::time::timeout(CALL_MAX, work.report(reports)).await;
    let mut answers = answered.unwrap_or_default();
    // A short answer is a fault of the other side; what is missing may or may not have happened.
    answers.resize_with(items.len(), || {
        let message = "the report was not answered";
        Err(ApiError::new(ErrorKind::Deadline, "no_answer", message))
    });
    Sent {
        items,
        answers,
        at,
        is_fresh,
    }
}

pub(super) fn settle(
    item: Item,
    answer: Result<Reported, ApiError>,
    sent: Instant,
    jitter: impl FnOnce() -> Jitter,
) -> Settled {
    match answer {
        Ok(reported) => kept(item, reported, sent),
        // Our own earlier sending, whose answer was lost and which another write of the task has covered up.
        Err(error)
            if matches!(item.action, Action::Start)
                && item.tries > 0
                && error.reason() == "already_started" =>
        {
            item.run.update_lease(|lease| {
                let left = lease.ends_at().saturating_duration_since(sent);
                lease.start_kept(sent, sent, Some(left));
            });
            Settled::Done
        }
        Err(error) if error.is_lost() => {
            tracing::debug!(
                job.name = %item.run.task.job, task.id = %item.run.task.id, %error,
                "the task is not ours any more",
            );
            item.run.stop(StopReason::Lost);
            item.answer(Err(error));
            Settled::Lost
        }
        Err(error) if matches!(item.action, Action::Heartbeat) => {
            item.run.missed_heartbeat();
            item.answer(Err(error));
            Settled::Done
        }
        Err(error) if error.is_retryable() => repeat(item, error, jitter()),
        Err(error) => refused(item, error),
    }
}

fn kept(item: Item, reported: Reported, sent: Instant) -> Settled {
    let (run, now, left) = (&item.run, Instant::now(), reported.lease);
    match item.action {
        Action::Start => run.update_lease(|lease| lease.start_kept(sent, now, left)),
        Action::Heartbeat | Action::Checkpoint { .. } | Action::Extend { .. } => {
            run.update_lease(|lease| lease.renewed(sent, now, left));
        }
        Action::Finish { .. } | Action::Abandon | Action::Trash { .. } => {}
    }
    if reported.cancel_requested && !run.is_over() {
        run.stop(StopReason::Cancelled);
    }
    let is_finish = matches!(item.action, Action::Finish { .. });
    item.answer(Ok(reported));
    if is_finish {
        Settled::Finished
    } else {
        Settled::Done
    }
}

/// The store is away: the report is repeated while the task can still be ours.
fn repeat(mut item: Item, error: ApiError, jitter: Jitter) -> Settled {
    let doubled = RETRY_MIN.saturating_mul(1 << item.tries.min(6));
    let wait = doubled.min(RETRY_MAX).mul_f64(0.5 + jitter.get() / 2.0);
    let left = item
        .run
        .lease_ends_at()
        .saturating_duration_since(Instant::now());
    // The other side may know better when to come back, as long as that leaves time for it.
    let asked = error.retry_after().unwrap_or_default().min(left / 4);
    let after = wait.max(asked);
    if after < left {
        item.tries += 1;
        return Settled::Again { item, after };
    }
    tracing::warn!(
        job.name = %item.run.task.job, task.id = %item.run.task.id, tries = item.tries + 1, %error,
        "failed to report before the lease ended; the task will run again",
    );
    metrics::counter!("dueline_executor_reports_dropped_total").increment(1);
    if matches!(item.action, Action::Start) {
        item.run.stop(StopReason::Expired);
    }
    item.answer(Err(error));
    Settled::Done
}

/// The report will never be accepted as it is.
fn refused(mut item: Item, error: ApiError) -> Settled {
    tracing::warn!(
        job.name = %item.run.task.job, task.id = %item.run.task.id, %error,
        "failed to report: refused",
    );
    match &mut item.action {
        // Without an outcome the task would run again and again, to be refused each time.
        Action::Finish {
            outcome: outcome @ Outcome::Success { .. },
            ..
        } => {
            let text = format!("the result was refused: {error}");
            *outcome = verdict::retriable(RetryClass::Slow, &text);
            // Another write needs another name.
            item.write = None;
            item.tries += 1;
            return Settled::Again {
                item,
                after: Duration::ZERO,
            };
        }
        // Heartbeats would be refused as well, so this run cannot keep its lease.
        Action::Start => item.run.stop(StopReason::Expired),
        _ => {}
    }
    item.answer(Err(error));
    Settled::Done
}
