//! What may happen to a task. [`apply`] decides every event; each move has a file of its own.

mod abandon;
mod adopt;
mod cancel;
mod checkpoint;
mod claim;
mod close;
mod event;
mod finish;
mod follow;
mod heartbeat;
mod modify;
mod reclaim;
mod redrive;
mod rejected;
mod release;
mod replace;
mod revive;
mod settle;
mod stage;
mod start;
mod transition;
mod trash;
mod trigger;
mod verb;

use std::sync::Arc;

use crate::{
    Children, Effect, Family, Owed, Policy, RunEnd, RunRecord, State, StateKind, Task, Timestamp,
    Token, WorkerId, WriteId, limits, truncate_text,
};

pub use event::{
    Adopt, Claim, ClaimChosen, ClaimLifetime, Close, Event, Modification, Outcome, Reclaim,
    Release, Replacement, Revive, RunEnded, RunningCancel, Settle, Trigger,
};
pub use rejected::{Reason, Rejected};
pub use transition::Transition;
pub use verb::Verb;

/// Decides what `event` does to `task` at `now`, under the policy of its job.
///
/// The function is pure: the same arguments give the same result. On an error the task is unchanged. `write` names
/// this write. A caller that finds its own `write` on the stored task ([`Task::write`]) has succeeded before and does
/// not call this function.
pub fn apply(
    task: &Task,
    job: &Policy,
    event: &Event,
    write: WriteId,
    now: Timestamp,
) -> Result<Transition, Rejected> {
    let policy = task.policy(job);
    // A clock that steps back must not move the time of change back.
    let now = now.max(task.changed_at);
    let context = MoveContext {
        task,
        policy: &policy,
        verb: event.verb(),
        write,
        now,
    };
    match event {
        Event::Follow(kind) => follow::follow(&context, *kind),
        Event::Close(step) => close::close(&context, *step),
        Event::Release(ended) => release::release(&context, ended),
        Event::RunEnded(ended) => release::run_ended(&context, *ended),
        Event::Stage { token } => stage::stage(&context, *token),
        Event::Adopt(again) => adopt::adopt(&context, again),
        Event::Trigger(trigger) => trigger::trigger(&context, trigger),
        Event::Reclaim(lost) => reclaim::reclaim(&context, lost),
        Event::Claim(claim) => claim::claim(&context, claim),
        Event::ClaimChosen(claim) => claim::claim_chosen(&context, claim),
        Event::Start { token } => start::start(&context, *token),
        Event::Heartbeat { token } => heartbeat::heartbeat(&context, *token),
        Event::Extend { token, by } => heartbeat::extend(&context, *token, *by),
        Event::Checkpoint { token, payload } => checkpoint::checkpoint(&context, *token, payload),
        Event::Finish {
            token,
            started_at,
            outcome,
            jitter,
        } => finish::finish(&context, *token, *started_at, outcome, *jitter),
        Event::Abandon { token, next } => abandon::abandon(&context, *token, *next),
        Event::Trash { token, reason } => trash::trash(&context, *token, reason),
        Event::Cancel { running, reason } => cancel::cancel(&context, *running, reason.clone()),
        Event::Modify { change, token } => modify::modify(&context, change, *token),
        Event::Replace(new) => replace::replace(&context, new),
        Event::Drop { reason } => cancel::drop(&context, reason),
        Event::Redrive => redrive::redrive(&context),
        Event::Reopen => revive::reopen(&context),
        Event::Revive(cause) => revive::revive(&context, cause),
        Event::Settle(settle) => settle::settle(&context, settle),
    }
}

/// The arguments that every move needs, and the constructors of its result.
struct MoveContext<'a> {
    task: &'a Task,
    policy: &'a Policy,
    verb: Verb,
    write: WriteId,
    now: Timestamp,
}

impl MoveContext<'_> {
    /// The transition into `state` that changes nothing else.
    fn to(&self, state: State) -> Transition {
        Transition {
            state,
            tries: self.task.tries,
            losses: self.task.losses,
            cancel_requested: self.task.cancel_requested,
            changed_at: self.now,
            started_at: self.task.started_at,
            finished_at: None,
            last_owner: self.task.last_owner.clone(),
            write: self.write,
            run: None,
            checkpoint: None,
            result: None,
            error: None,
            modified: None,
            fresh: false,
            owed: None,
            family: None,
            options: None,
        }
    }

    /// The transition into a final state. The task owes its end to its family, and its record if its job has a sink.
    fn end(&self, state: State, error: Option<Arc<str>>) -> Transition {
        let family = self.task.family();
        let is_parent = self.task.children() != Children::None;
        // The family of a task that has not succeeded ends with it: no child of it has begun.
        let stays_open = is_parent && state.kind() == StateKind::Succeeded;
        let closes = is_parent && !stays_open;
        let staged = family.and_then(|family| family.staged);
        // The run that succeeds is named, so that only what it has staged goes on.
        let run = self.task.state.token();
        let run = run.filter(|_| staged.is_some() && state.kind() == StateKind::Succeeded);
        let run = run.or(staged);
        let changed = family.filter(|_| closes || run != staged).map(|family| {
            Box::new(Family {
                children: match closes {
                    true => Children::Closed,
                    false => family.children,
                },
                staged: run,
                ..family.clone()
            })
        });
        let has_parent = family.is_some_and(|family| family.parent.is_some());
        let owes = [
            (Effect::Staged, staged.is_some()),
            (Effect::Children, is_parent),
            (Effect::Release, self.task.has_followers() && !stays_open),
            (Effect::Leave, has_parent && !stays_open),
            (Effect::Deliver, self.policy.sink.is_some()),
            (Effect::Close, stays_open),
        ];
        let effects = owes.into_iter().filter(|(_, owes)| *owes);
        let effects = effects.map(|(effect, _)| effect).collect();
        Transition {
            owed: Owed::new(effects, self.now),
            family: changed,
            finished_at: Some(self.now),
            last_owner: self.task.lease().map(|lease| lease.worker.clone()),
            cancel_requested: false,
            error,
            ..self.to(state)
        }
    }

    /// The transition that enqueues the task.
    fn enqueue(&self, token: Token) -> Transition {
        let expires_at = self.now.after(self.policy.enqueue_timeout);
        self.to(State::Enqueued { token, expires_at })
    }

    /// The refusal of this event.
    fn reject(&self, reason: Reason) -> Rejected {
        Rejected {
            verb: self.verb,
            state: self.task.kind(),
            reason,
            owner: self.task.lease().map(|lease| lease.worker.clone()),
        }
    }

    /// The refusal of an event by a worker that shows `token`.
    fn reject_worker(&self, token: Token) -> Rejected {
        let reason = match &self.task.state {
            state if state.kind().is_final() => Reason::Finished,
            State::Waiting { .. } | State::New { .. } => Reason::NotClaimed,
            State::Enqueued { token: current, .. } if *current == token => Reason::NotClaimed,
            State::Claimed { token: current, .. } if *current == token => Reason::NotStarted,
            State::Processing { token: current, .. } if *current == token => Reason::AlreadyStarted,
            _ => Reason::Lost,
        };
        self.reject(reason)
    }

    /// The record of a run that began at `started_at` and ends now.
    fn run_record(&self, started_at: Timestamp, end: RunEnd, info: &str) -> Box<RunRecord> {
        let worker = self.task.lease().map(|lease| lease.worker.clone());
        Box::new(RunRecord {
            attempt: self.task.attempt(),
            worker: worker.unwrap_or_else(|| {
                // Only a task with an owner has a run, so this id is never stored.
                WorkerId::parse("unknown").expect("a legal worker id")
            }),
            started_at,
            finished_at: self.now,
            end,
            info: error_text(info),
        })
    }
}

/// The text as it is stored in an error: cut to the limit.
fn error_text(text: &str) -> Arc<str> {
    Arc::from(truncate_text(text, limits().error_bytes_max))
}

#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod tests;
