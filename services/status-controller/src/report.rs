//! What owners say about their tasks.

use dueline_api::{Action, ApiError, Report, Reported};
use dueline_domain::{Event, Rejected, Task, Timestamp};
use dueline_ports::{Command, StoreError, apply_and_hand_on};

use crate::{StatusController, metrics};

impl StatusController {
    pub(crate) async fn report_all(&self, reports: Vec<Report>) -> Vec<Result<Reported, ApiError>> {
        let deps = &self.deps;
        let mut tally = metrics::Reports::default();
        // Which reports end a run is asked before the outcomes move into the commands.
        let ends: Vec<bool> = reports
            .iter()
            .map(|report| ends_run(&report.action))
            .collect();
        let commands = reports.into_iter().map(|report| self.command(report));
        let commands = commands.collect();
        let now = deps.clock.now();
        // What is given back is enqueued by this very write, so its message goes out at once.
        let results = apply_and_hand_on(&*deps.store, &*deps.queue, now, commands).await;
        let answers = results
            .into_iter()
            .zip(ends)
            .map(|(result, ends)| match result {
                Ok(applied) => {
                    // A repetition signals again: the one before may have died between its write and its signal.
                    self.signal(&applied.task);
                    if ends && !applied.repeated {
                        tally.ended(&applied.task);
                    }
                    Ok(reported(&applied.task, now))
                }
                Err(error) => {
                    tally.refused(&error);
                    Err(error.into())
                }
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

const fn ends_run(action: &Action) -> bool {
    matches!(
        action,
        Action::Finish { .. } | Action::Abandon | Action::Trash { .. }
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
