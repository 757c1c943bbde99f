//! Tasks with all that is known about them.

use std::sync::Arc;

use dueline_domain::{
    Effect, Firing, History, Lease, Owed, Policy, RunRecord, State, StateKind, Task, TaskOptions,
    Timestamp, Token, WriteId,
};

use super::{enums, field};
use crate::{
    ApiError, ErrorReason,
    grpc::proto::{self, task::State as Wire},
};

impl From<Task> for proto::Task {
    fn from(task: Task) -> Self {
        Self {
            id: task.id.to_string(),
            job: task.job.to_string(),
            state: Some(task.state.into()),
            priority: task.priority.get().into(),
            weight: task.weight.get().into(),
            run_at_ms: task.run_at.millis(),
            created_at_ms: task.created_at.millis(),
            changed_at_ms: task.changed_at.millis(),
            started_at_ms: task.started_at.map(Timestamp::millis),
            finished_at_ms: task.finished_at.map(Timestamp::millis),
            last_owner: task.last_owner.map(|worker| worker.to_string()),
            tries: task.tries,
            losses: task.losses,
            cancel_requested: task.cancel_requested,
            payload: task.payload,
            checkpoint: task.checkpoint,
            result: task.result,
            error: field::string_opt(task.error),
            history: task.history.map(|history| (*history).into()),
            original_run_at_ms: task
                .options
                .as_ref()
                .and_then(|options| options.original_run_at)
                .map(Timestamp::millis),
            firing: task
                .options
                .as_ref()
                .and_then(|options| options.firing.as_ref())
                .map(|firing| proto::Firing {
                    schedule: firing.schedule.to_string(),
                    nominal_at_ms: firing.nominal_at.millis(),
                }),
            options: task.options.map(|options| (*options).into()),
            owed: task.owed.map(|owed| (*owed).into()),
        }
    }
}

impl TryFrom<proto::Task> for Task {
    type Error = ApiError;

    fn try_from(task: proto::Task) -> Result<Self, ApiError> {
        let options = task.options.map(TaskOptions::try_from).transpose()?;
        let mut options = options.map(Box::new);
        let original = "task.original_run_at_ms";
        if let Some(run_at) = field::timestamp_opt(original, task.original_run_at_ms)? {
            options.get_or_insert_default().original_run_at = Some(run_at);
        }
        if let Some(firing) = task.firing {
            let (schedule, nominal) = ("task.firing.schedule", "task.firing.nominal_at_ms");
            options.get_or_insert_default().firing = Some(Firing {
                schedule: field::schedule_name(schedule, &firing.schedule)?,
                nominal_at: field::timestamp(nominal, firing.nominal_at_ms)?,
            });
        }
        let last_owner = task.last_owner.as_deref();
        Ok(Self {
            id: field::task_id("task.id", &task.id)?,
            job: field::job_name("task.job", &task.job)?,
            state: field::required("task.state", task.state)?.try_into()?,
            priority: field::priority("task.priority", task.priority)?,
            weight: field::weight("task.weight", task.weight)?,
            run_at: field::timestamp("task.run_at_ms", task.run_at_ms)?,
            created_at: field::timestamp("task.created_at_ms", task.created_at_ms)?,
            changed_at: field::timestamp("task.changed_at_ms", task.changed_at_ms)?,
            started_at: field::timestamp_opt("task.started_at_ms", task.started_at_ms)?,
            finished_at: field::timestamp_opt("task.finished_at_ms", task.finished_at_ms)?,
            last_owner: last_owner
                .map(|worker| field::worker_id("task.last_owner", worker))
                .transpose()?,
            tries: task.tries,
            losses: task.losses,
            cancel_requested: task.cancel_requested,
            write: WriteId::HIDDEN,
            payload: task.payload,
            checkpoint: task.checkpoint,
            result: task.result,
            error: field::text_opt(task.error),
            history: task
                .history
                .map(|history| History::try_from(history).map(Box::new))
                .transpose()?,
            options,
            owed: task
                .owed
                .map(|owed| Owed::try_from(owed).map(Box::new))
                .transpose()?,
        })
    }
}

impl From<State> for Wire {
    fn from(state: State) -> Self {
        match state {
            State::Waiting { check_at } => Self::Waiting(proto::WaitingState {
                check_at_ms: check_at.millis(),
            }),
            State::New { due_at } => Self::New(proto::NewState {
                due_at_ms: due_at.millis(),
            }),
            State::Enqueued { expires_at, .. } => Self::Enqueued(proto::EnqueuedState {
                expires_at_ms: expires_at.millis(),
            }),
            State::Claimed { lease, .. } => Self::Claimed(owned(&lease)),
            State::Processing { lease, .. } => Self::Processing(owned(&lease)),
            State::Retriable { retry_at } => Self::Retriable(proto::RetriableState {
                retry_at_ms: retry_at.millis(),
            }),
            State::Succeeded
            | State::Failed
            | State::Cancelled
            | State::Trashed
            | State::Dropped => Self::Ended(enums::state_number(state.kind())),
        }
    }
}

impl TryFrom<Wire> for State {
    type Error = ApiError;

    fn try_from(state: Wire) -> Result<Self, ApiError> {
        Ok(match state {
            Wire::Waiting(waiting) => Self::Waiting {
                check_at: field::timestamp("task.waiting.check_at_ms", waiting.check_at_ms)?,
            },
            Wire::New(new) => Self::New {
                due_at: field::timestamp("task.new.due_at_ms", new.due_at_ms)?,
            },
            Wire::Enqueued(enqueued) => Self::Enqueued {
                token: Token::HIDDEN,
                expires_at: field::timestamp(
                    "task.enqueued.expires_at_ms",
                    enqueued.expires_at_ms,
                )?,
            },
            Wire::Claimed(owned) => Self::Claimed {
                token: Token::HIDDEN,
                lease: lease(&owned)?,
            },
            Wire::Processing(owned) => Self::Processing {
                token: Token::HIDDEN,
                lease: lease(&owned)?,
            },
            Wire::Retriable(retriable) => Self::Retriable {
                retry_at: field::timestamp("task.retriable.retry_at_ms", retriable.retry_at_ms)?,
            },
            Wire::Ended(number) => match enums::state_kind("task.ended", number)? {
                StateKind::Succeeded => Self::Succeeded,
                StateKind::Failed => Self::Failed,
                StateKind::Cancelled => Self::Cancelled,
                StateKind::Trashed => Self::Trashed,
                StateKind::Dropped => Self::Dropped,
                kind => {
                    let text = format!("{kind} is not a final state");
                    return Err(ApiError::invalid("task.ended", ErrorReason::BadState, text));
                }
            },
        })
    }
}

fn owned(lease: &Lease) -> proto::OwnedState {
    proto::OwnedState {
        worker: lease.worker.to_string(),
        claimed_at_ms: lease.claimed_at.millis(),
        heartbeat_at_ms: lease.heartbeat_at.millis(),
        expires_at_ms: lease.expires_at.millis(),
        deadline_at_ms: lease.run_ends_at().map(Timestamp::millis),
    }
}

fn lease(owned: &proto::OwnedState) -> Result<Lease, ApiError> {
    let run_ends_at = field::timestamp_opt("task.lease.deadline_at_ms", owned.deadline_at_ms)?;
    Ok(Lease {
        worker: field::worker_id("task.lease.worker", &owned.worker)?,
        claimed_at: field::timestamp("task.lease.claimed_at_ms", owned.claimed_at_ms)?,
        heartbeat_at: field::timestamp("task.lease.heartbeat_at_ms", owned.heartbeat_at_ms)?,
        expires_at: field::timestamp("task.lease.expires_at_ms", owned.expires_at_ms)?,
        deadline_at: run_ends_at.map(|end| end.after(Policy::RUN_GRACE)),
    })
}

impl From<Owed> for proto::Owed {
    fn from(owed: Owed) -> Self {
        let names = owed.effects.iter().map(|effect| effect.name().to_owned());
        Self {
            effects: names.collect(),
            next_try_at_ms: owed.trigger_at.millis(),
            failures: owed.failures,
            error: field::string_opt(owed.error),
        }
    }
}

impl TryFrom<proto::Owed> for Owed {
    type Error = ApiError;

    fn try_from(owed: proto::Owed) -> Result<Self, ApiError> {
        let effect = |name: &String| {
            let unknown =
                || ApiError::invalid("task.owed.effects", ErrorReason::UnknownEffect, name);
            Effect::from_name(name).ok_or_else(unknown)
        };
        Ok(Self {
            effects: owed.effects.iter().map(effect).collect::<Result<_, _>>()?,
            trigger_at: field::timestamp("task.owed.next_try_at_ms", owed.next_try_at_ms)?,
            failures: owed.failures,
            error: field::text_opt(owed.error),
        })
    }
}

impl From<History> for proto::History {
    fn from(history: History) -> Self {
        Self {
            runs: history.runs.into_iter().map(Into::into).collect(),
            dropped: history.dropped,
        }
    }
}

impl TryFrom<proto::History> for History {
    type Error = ApiError;

    fn try_from(history: proto::History) -> Result<Self, ApiError> {
        let runs = history.runs.into_iter().map(RunRecord::try_from);
        Ok(Self {
            runs: runs.collect::<Result<_, _>>()?,
            dropped: history.dropped,
        })
    }
}

impl From<RunRecord> for proto::RunRecord {
    fn from(run: RunRecord) -> Self {
        Self {
            attempt: run.attempt,
            worker: run.worker.to_string(),
            started_at_ms: run.started_at.millis(),
            finished_at_ms: run.finished_at.millis(),
            end: proto::RunEnd::from(run.end).into(),
            info: run.info.as_ref().to_owned(),
        }
    }
}

impl TryFrom<proto::RunRecord> for RunRecord {
    type Error = ApiError;

    fn try_from(run: proto::RunRecord) -> Result<Self, ApiError> {
        Ok(Self {
            attempt: run.attempt,
            worker: field::worker_id("task.history.worker", &run.worker)?,
            started_at: field::timestamp("task.history.started_at_ms", run.started_at_ms)?,
            finished_at: field::timestamp("task.history.finished_at_ms", run.finished_at_ms)?,
            end: enums::run_end("task.history.end", run.end)?,
            info: Arc::from(run.info),
        })
    }
}
