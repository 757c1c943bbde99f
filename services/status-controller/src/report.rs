//! What owners say about their tasks.

use dueline_api::{Action, ApiError, Report, Reported};
use dueline_domain::{Event, Rejected, Task, Timestamp, Token};
use dueline_ports::{Applied, Command, StoreError, apply_and_hand_on};
use tokio::time::Instant;

use crate::{
    StatusController,
    definitions::Definitions,
    heartbeats::{RunKey, Writing, Written},
    metrics,
};

/// A report that is to be answered.
enum Pending<'a> {
    /// It needs no write.
    Known(Reported),
    /// The answer of the store decides.
    Asked(Asked<'a>),
}

struct Asked<'a> {
    /// Whether it ends a run: asked before the outcome moves into the command.
    ends_run: bool,
    token: Token,
    writing: Option<Writing<'a>>,
}

impl StatusController {
    pub(crate) async fn report_all(&self, reports: Vec<Report>) -> Vec<Result<Reported, ApiError>> {
        let deps = &self.deps;
        let mut pending = Vec::with_capacity(reports.len());
        let mut commands = Vec::with_capacity(reports.len());
        for report in reports {
            match self.known(&report) {
                Some(reported) => pending.push(Pending::Known(reported)),
                None => {
                    pending.push(Pending::Asked(self.asked(&report)));
                    commands.push(self.command(report));
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
        // For what can be remembered of the leases.
        let definitions = match self.config.heartbeats_coalesced {
            true => {
                let renewing = commands.iter().filter(|command| renews(&command.event));
                Some(self.definitions(renewing.map(|command| &command.job)).await)
            }
            false => None,
        };
        let times = (Instant::now(), deps.clock.now());
        // What is given back is enqueued by this very write, so its message goes out at once.
        let results = apply_and_hand_on(&*deps.store, &*deps.queue, times.1, commands).await;
        self.answers(pending, results, definitions.as_ref(), times)
    }

    /// The answer to a heartbeat that needs no write.
    fn known(&self, report: &Report) -> Option<Reported> {
        let may_be_known =
            self.config.heartbeats_coalesced && matches!(report.action, Action::Heartbeat);
        if !may_be_known {
            return None;
        }
        self.heartbeats.answer(&key(report), Instant::now())
    }

    fn asked(&self, report: &Report) -> Asked<'_> {
        let is_remembered = self.config.heartbeats_coalesced;
        Asked {
            ends_run: ends_run(&report.action),
            token: report.token,
            writing: is_remembered.then(|| self.heartbeats.write(key(report))),
        }
    }

    fn answers(
        &self,
        pending: Vec<Pending<'_>>,
        results: Vec<Result<Applied, StoreError>>,
        definitions: Option<&Definitions>,
        (sent, now): (Instant, Timestamp),
    ) -> Vec<Result<Reported, ApiError>> {
        let mut tally = metrics::Reports::default();
        let mut results = results.into_iter();
        let mut answer = |asked: Asked<'_>| {
            match results.next() {
                None => Err(ApiError::unavailable("store gave no answer for a report")),
                Some(Err(error)) => {
                    tally.refused(&error);
                    Err(error.into())
                }
                Some(Ok(applied)) => {
                    let task = &applied.task;
                    // A repetition signals again: the one before may have died between its write and its signal.
                    self.signal(task);
                    if asked.ends_run && !applied.repeated {
                        tally.ended(task);
                    }
                    let job = definitions.and_then(|definitions| definitions.of(&task.job));
                    if let (Some(writing), Some(Ok(job))) = (asked.writing, job) {
                        let (token, interval) = (asked.token, self.config.interval);
                        writing.keep(Written::of(task, &job.policy, token, sent, now, interval));
                    }
                    Ok(reported(task, now))
                }
            }
        };
        let answers = pending.into_iter().map(|pending| match pending {
            Pending::Known(reported) => Ok(reported),
            Pending::Asked(asked) => answer(asked),
        });
        let answers = answers.collect();
        tally.count();
        answers
    }

    fn command(&self, report: Report) -> Command {
        let token = report.token;
        let event = match report.action {
            Action::Start => Event::Start { token },
            Action::Heartbeat => Event::Heartbeat { token },
            Action::Extend { by } => Event::Extend { token, by },
            Action::Checkpoint { payload } => Event::Checkpoint { token, payload },
            Action::Finish {
                started_at,
                outcome,
            } => Event::Finish {
                token,
                started_at,
                outcome,
                jitter: self.deps.rng.jitter(),
            },
            Action::Abandon => Event::Abandon {
                token,
                next: self.deps.rng.token(),
            },
            Action::Trash { reason } => Event::Trash { token, reason },
        };
        Command {
            job: report.job,
            id: report.id,
            event,
            write: report.write,
        }
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

/// Whether an event may leave a run with a new lease.
const fn renews(event: &Event) -> bool {
    matches!(
        event,
        Event::Start { .. }
            | Event::Heartbeat { .. }
            | Event::Extend { .. }
            | Event::Checkpoint { .. }
    )
}

fn reported(task: &Task, now: Timestamp) -> Reported {
    let lease = task.lease();
    Reported {
        state: task.kind(),
        cancel_requested: task.cancel_requested,
        lease: lease.map(|lease| lease.ends_at().since(now)),
    }
}

/// Whether an error means that the task has moved on without the one who asks.
pub(crate) const fn has_moved(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Rejected(Rejected { .. }) | StoreError::NotFound { .. }
    )
}
