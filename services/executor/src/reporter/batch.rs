//! One call with a batch of reports, and the effects of its answers.

use std::{sync::Arc, time::Duration};

use dueline_api::{Action, ApiError, Controller, ErrorKind, ErrorReason, Report, ReportAck};
use dueline_domain::{Jitter, Outcome, RetryClass, WriteId};
use tokio::time::Instant;

use crate::{StopReason, run::RunReport, verdict};

/// Timeout of a call; the outcome of its reports is then unknown.
const CALL_MAX: Duration = Duration::from_secs(5);
/// First wait before a report is repeated; doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(50);
/// Longest wait before a report is repeated.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// A report that the reporter has received, until it is settled.
pub(super) struct QueuedReport {
    pub(super) report: RunReport,
    /// Chosen at the first send and kept, so that a repetition is recognised.
    pub(super) write: Option<WriteId>,
    /// How often the report was repeated.
    retries: u32,
}

impl QueuedReport {
    pub(super) fn new(report: RunReport) -> Self {
        Self {
            report,
            write: None,
            retries: 0,
        }
    }
}

/// A batch whose call has ended.
pub(super) struct AnsweredBatch {
    pub(super) reports: Vec<QueuedReport>,
    pub(super) answers: Vec<Result<ReportAck, ApiError>>,
    /// When the call began. All effects in the store are later.
    pub(super) sent_at: Instant,
    /// Whether this was the first send of its reports.
    pub(super) is_first: bool,
}

/// What the answer to a report means for the reporter.
pub(super) enum ReportResult {
    /// The report is settled.
    Done,
    /// The report is settled: an outcome is durable.
    Finished,
    /// The worker does not own the task any more.
    Lost,
    /// The report must be sent again.
    Repeat {
        queued: QueuedReport,
        after: Duration,
    },
}

pub(super) async fn send(
    controller: Arc<dyn Controller>,
    reports: Vec<QueuedReport>,
    is_first: bool,
    wait: Duration,
) -> AnsweredBatch {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    let sent_at = Instant::now();
    let mut request = Vec::with_capacity(reports.len());
    for queued in &reports {
        let RunReport { run, action, .. } = &queued.report;
        if matches!(action, Action::Start) {
            run.update_lease(|lease| lease.start_sent(sent_at));
        }
        request.push(Report {
            job: run.task.job.clone(),
            id: run.task.id,
            token: run.task.token,
            // The reporter has set the write id of each report before this call.
            write: queued.write.unwrap_or(WriteId::from_random(0)),
            action: action.clone(),
            trace: run.trace_of_end(action),
        });
    }
    let answered = tokio::time::timeout(CALL_MAX, controller.report(request)).await;
    let mut answers = answered.unwrap_or_default();
    // A controller that returns too few answers is faulty. The outcome of the unanswered reports is unknown.
    answers.resize_with(reports.len(), || {
        let message = "the report was not answered";
        Err(ApiError::new(
            ErrorKind::Deadline,
            ErrorReason::NoAnswer,
            message,
        ))
    });
    AnsweredBatch {
        reports,
        answers,
        sent_at,
        is_first,
    }
}

pub(super) fn settle(
    queued: QueuedReport,
    answer: Result<ReportAck, ApiError>,
    sent_at: Instant,
    jitter: impl FnOnce() -> Jitter,
) -> ReportResult {
    let report = &queued.report;
    match answer {
        Ok(ack) => accepted(queued.report, ack, sent_at),
        // An earlier send of this start was stored and its answer lost. The store no longer recognises the write id,
        // because another write of the task came after it.
        Err(error)
            if matches!(report.action, Action::Start)
                && queued.retries > 0
                && *error.reason() == ErrorReason::AlreadyStarted =>
        {
            report.run.update_lease(|lease| {
                let left = lease.ends_at().saturating_duration_since(sent_at);
                lease.start_stored(sent_at, sent_at, Some(left));
            });
            ReportResult::Done
        }
        Err(error) if error.is_lost() => {
            tracing::debug!(
                job.name = %report.run.task.job, task.id = %report.run.task.id, %error,
                "this worker does not own the task any more",
            );
            report.run.stop(StopReason::Lost);
            queued.report.answer(Err(error));
            ReportResult::Lost
        }
        Err(error) if matches!(report.action, Action::Heartbeat) => {
            report.run.heartbeat_failed();
            queued.report.answer(Err(error));
            ReportResult::Done
        }
        Err(error) if error.is_retryable() => repeat(queued, error, jitter()),
        Err(error) => refused(queued, error),
    }
}

fn accepted(report: RunReport, ack: ReportAck, sent_at: Instant) -> ReportResult {
    let (run, now, left) = (&report.run, Instant::now(), ack.lease);
    match report.action {
        Action::Start => run.update_lease(|lease| lease.start_stored(sent_at, now, left)),
        Action::Heartbeat | Action::Checkpoint { .. } | Action::Extend { .. } => {
            run.update_lease(|lease| lease.renewed(sent_at, now, left));
        }
        Action::Finish { .. } | Action::Abandon | Action::Trash { .. } => {}
    }
    if ack.cancel_requested && !run.is_over() {
        run.stop(StopReason::Cancelled);
    }
    let is_finish = matches!(report.action, Action::Finish { .. });
    report.answer(Ok(ack));
    if is_finish {
        ReportResult::Finished
    } else {
        ReportResult::Done
    }
}

/// Repeats a report after a retryable error, as long as the lease lasts. Then the report is dropped.
fn repeat(mut queued: QueuedReport, error: ApiError, jitter: Jitter) -> ReportResult {
    let doubled = RETRY_MIN.saturating_mul(1 << queued.retries.min(6));
    let wait = doubled.min(RETRY_MAX).mul_f64(0.5 + jitter.get() / 2.0);
    let run = &queued.report.run;
    let left = run
        .lease_ends_at()
        .saturating_duration_since(Instant::now());
    // A wait that the error asks for is respected, up to a quarter of the remaining lease.
    let retry_after = error.retry_after().unwrap_or_default().min(left / 4);
    let after = wait.max(retry_after);
    if after < left {
        queued.retries += 1;
        return ReportResult::Repeat { queued, after };
    }
    tracing::warn!(
        job.name = %run.task.job, task.id = %run.task.id, tries = queued.retries + 1, %error,
        "failed to report before the lease ended; the task will run again",
    );
    metrics::counter!("dueline_executor_reports_dropped_total").increment(1);
    if matches!(queued.report.action, Action::Start) {
        run.stop(StopReason::Expired);
    }
    queued.report.answer(Err(error));
    ReportResult::Done
}

/// Handles an error that is not retryable: the report will never be accepted as it is.
fn refused(mut queued: QueuedReport, error: ApiError) -> ReportResult {
    let RunReport { run, action, .. } = &mut queued.report;
    tracing::warn!(
        job.name = %run.task.job, task.id = %run.task.id, %error,
        "failed to report: refused",
    );
    match action {
        // A refused success becomes a failure. Without an outcome, the task would run and be refused for ever.
        Action::Finish {
            outcome: outcome @ Outcome::Success { .. },
            ..
        } => {
            let text = format!("the result was refused: {error}");
            *outcome = verdict::retriable(RetryClass::Slow, &text);
            // The changed report is another write and needs its own write id.
            queued.write = None;
            queued.retries += 1;
            return ReportResult::Repeat {
                queued,
                after: Duration::ZERO,
            };
        }
        // Without a start, heartbeats are refused too, so the run cannot keep its lease.
        Action::Start => run.stop(StopReason::Expired),
        _ => {}
    }
    queued.report.answer(Err(error));
    ReportResult::Done
}
