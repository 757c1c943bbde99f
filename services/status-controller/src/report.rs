//! Processes the reports of owners.

use dueline_api::{Action, ApiError, Report, ReportAck};
use dueline_domain::{Event, Rejected, Timestamp, Token};
use dueline_ports::{Applied, StoreError};
use dueline_runtime::log_transition;
use tokio::time::Instant;

use crate::{
    StatusControllerService,
    definitions::JobDefinitions,
    lease_cache::{CachedLease, LeaseWrite, RunKey},
    metrics,
    spans::PendingOutcome,
};

/// How a report is answered.
enum PendingAnswer<'a> {
    /// From the lease cache, without a write.
    Cached(ReportAck),
    /// With the result of its write.
    Written(PendingWrite<'a>),
}

struct PendingWrite<'a> {
    /// Whether the report ends a run.
    ends_run: bool,
    /// The outcome to record, while tracing is on.
    outcome: Option<PendingOutcome>,
    token: Token,
    /// Present when the written lease may be cached.
    lease_write: Option<LeaseWrite<'a>>,
}

impl StatusControllerService {
    pub(crate) async fn report_all(
        &self,
        reports: Vec<Report>,
    ) -> Vec<Result<ReportAck, ApiError>> {
        let deps = &self.deps;
        let mut pending = Vec::with_capacity(reports.len());
        let mut commands = Vec::with_capacity(reports.len());
        for report in reports {
            match self.cached_answer(&report) {
                Some(ack) => pending.push(PendingAnswer::Cached(ack)),
                None => {
                    pending.push(PendingAnswer::Written(self.pending_write(&report)));
                    commands.push(report.into_command(&*deps.rng));
                }
            }
        }
        metrics::count_coalesced((pending.len() - commands.len()) as u64);
        if commands.is_empty() {
            return self.answers(
                pending,
                Vec::new(),
                None,
                (Instant::now(), deps.clock.now()),
            );
        }
        // The lease cache needs the policies.
        let definitions = match self.config.heartbeats_coalesced {
            true => {
                let renewing = commands.iter().filter(|command| renews(&command.event));
                Some(self.definitions(renewing.map(|command| &command.job)).await)
            }
            false => None,
        };
        let times = (Instant::now(), deps.clock.now());
        let effects = deps.effects();
        let results = effects.apply(&*deps.store, times.1, commands).await;
        self.discard_staged(&results).await;
        self.answers(pending, results, definitions.as_ref(), times)
    }

    /// The answer to a heartbeat that needs no write.
    fn cached_answer(&self, report: &Report) -> Option<ReportAck> {
        let may_be_cached =
            self.config.heartbeats_coalesced && matches!(report.action, Action::Heartbeat);
        if !may_be_cached {
            return None;
        }
        self.leases.answer(&key(report), Instant::now())
    }

    fn pending_write(&self, report: &Report) -> PendingWrite<'_> {
        let is_cached = self.config.heartbeats_coalesced;
        PendingWrite {
            ends_run: ends_run(&report.action),
            outcome: PendingOutcome::of(&report.action, report.trace.as_ref()),
            token: report.token,
            lease_write: is_cached.then(|| self.leases.begin_write(key(report))),
        }
    }

    fn answers(
        &self,
        pending: Vec<PendingAnswer<'_>>,
        results: Vec<Result<Applied, StoreError>>,
        definitions: Option<&JobDefinitions>,
        (sent, now): (Instant, Timestamp),
    ) -> Vec<Result<ReportAck, ApiError>> {
        let mut counts = metrics::ReportCounts::default();
        let mut results = results.into_iter();
        let mut answer = |write: PendingWrite<'_>| match results.next() {
            None => Err(ApiError::unavailable("store did not answer a report")),
            Some(Err(error)) => {
                if is_stale(&error) {
                    counts.refused();
                }
                Err(error.into())
            }
            Some(Ok(applied)) => {
                let task = &applied.task;
                if !applied.repeated {
                    log_transition(None, task);
                }
                if write.ends_run && !applied.repeated {
                    counts.ended(task);
                }
                if let Some(outcome) = write.outcome.filter(|_| !applied.repeated) {
                    outcome.written(task);
                }
                let job = definitions.and_then(|definitions| definitions.of(&task.job));
                if let (Some(lease_write), Some(Ok(job))) = (write.lease_write, job) {
                    let (token, interval) = (write.token, self.config.interval);
                    lease_write.succeeded(CachedLease::of(
                        task,
                        &job.policy,
                        token,
                        sent,
                        now,
                        interval,
                    ));
                }
                Ok(ReportAck::of(task, now))
            }
        };
        let answers = pending.into_iter().map(|pending| match pending {
            PendingAnswer::Cached(ack) => Ok(ack),
            PendingAnswer::Written(write) => answer(write),
        });
        let answers = answers.collect();
        counts.record();
        answers
    }
}

fn key(report: &Report) -> RunKey {
    RunKey {
        id: report.id,
        token: report.token,
        job: report.job.clone(),
    }
}

const fn ends_run(action: &Action) -> bool {
    matches!(
        action,
        Action::Finish { .. } | Action::Abandon | Action::Trash { .. }
    )
}

/// Whether an event may renew the lease of a run.
const fn renews(event: &Event) -> bool {
    matches!(
        event,
        Event::Start { .. }
            | Event::Heartbeat { .. }
            | Event::Extend { .. }
            | Event::Checkpoint { .. }
    )
}

/// Whether an error means that the event came too late: the worker does not own the task any more, the task is in a
/// later state, or it is deleted.
pub(crate) const fn is_stale(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Rejected(Rejected { .. }) | StoreError::NotFound { .. }
    )
}
