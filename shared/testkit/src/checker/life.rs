//! The life of one task as the history tells it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use dueline_domain::{
    State, StateKind, Task, TaskId, Timestamp, Token, Verb, WorkerId, check_step,
};

use super::{Checker, Found};
use crate::{Entry, What};

#[derive(Default)]
pub(super) struct Life {
    last: Option<Task>,
    just_succeeded: bool,
    /// The token of the latest hand-on, and all before it.
    token: Option<Token>,
    retired: BTreeSet<u64>,
    owners: BTreeMap<u64, WorkerId>,
    /// User code by token: how often it began, and whether it returned a success.
    began: BTreeMap<u64, u32>,
    succeeded: BTreeSet<u64>,
    /// Begun runs that the store knows of, less those given back; claims lost before a start; new lives.
    stored_starts: u32,
    given_back: u32,
    claims_lost: u32,
    redriven: u32,
    /// Until when the latest retry must wait, reckoned from what the writer of its failure took for the time.
    waits_until: Option<Timestamp>,
}

/// One accepted write.
struct Step<'a> {
    /// The latest that any clock can have shown then.
    at: Timestamp,
    /// The time that the writer told.
    told: Timestamp,
    verb: Verb,
    before: &'a Task,
    after: &'a Task,
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, from, to) = (self.after.id, &self.before.state, &self.after.state);
        write!(
            f,
            "{} of task {id} by {}: {from:?} became {to:?}",
            self.verb, self.at
        )
    }
}

impl Life {
    pub(super) const fn last(&self) -> Option<&Task> {
        self.last.as_ref()
    }

    pub(super) const fn has_just_succeeded(&self) -> bool {
        self.just_succeeded
    }

    /// Something that happened around the task.
    pub(super) fn event(&mut self, entry: &Entry, found: &mut Found) {
        match &entry.what {
            What::RunStarted { id, token, .. } => {
                let began = self.began.entry(token.get()).or_default();
                *began += 1;
                found.unless(*began == 1, "one run per token", || {
                    format!("task {id} ran {began} times with token {token}")
                });
                let known = self.token == Some(*token) || self.retired.contains(&token.get());
                found.unless(known, "no ghosts", || {
                    format!("task {id} ran with token {token} that no hand-on made")
                });
            }
            // Its outcome may be reported, and no run is counted.
            What::RunStopped { token, .. } => {
                self.began.entry(token.get()).or_default();
            }
            What::RunEnded {
                token,
                success: true,
                ..
            } => {
                self.succeeded.insert(token.get());
            }
            What::MessageDeleted { id, token } => {
                let state = self.last.as_ref().map(|task| &task.state);
                let unclaimed =
                    matches!(state, Some(State::Enqueued { token: held, .. }) if held == token);
                found.unless(
                    !unclaimed,
                    "a message is deleted only after the claim",
                    || format!("task {id} with token {token} at {}", entry.at),
                );
            }
            _ => {}
        }
    }

    /// A write that the store accepted.
    pub(super) fn stored(&mut self, entry: &Entry, checker: &Checker, found: &mut Found) {
        let What::Stored { verb, now, task } = &entry.what else {
            return;
        };
        let before = self.last.replace((**task).clone());
        self.just_succeeded = task.kind() == StateKind::Succeeded;
        match (before, verb) {
            (None, None) => {}
            (Some(before), Some(verb)) => {
                let step = Step {
                    at: entry.at.after(checker.skew_max),
                    told: *now,
                    verb: *verb,
                    before: &before,
                    after: task,
                };
                self.step(&step, found);
                self.check_wait(&step, found);
            }
            (before, verb) => found.unless(false, "a task is created once", || {
                format!("{verb:?} of task {} after {before:?}", task.id)
            }),
        }
        self.take_token(task, found);
        self.take_owner(task, found);
    }

    fn step(&mut self, step: &Step<'_>, found: &mut Found) {
        let (verb, before, after) = (step.verb, step.before, step.after);
        let tell = || step.to_string();
        found.unless(check_step(before, after).is_ok(), "only legal steps", tell);
        let redriven = verb == Verb::Redrive;
        let ended = before.kind().is_final();
        found.unless(!ended || redriven, "one terminal state", tell);
        self.redriven += u32::from(redriven);
        let given_back = verb == Verb::Abandon && before.kind() == StateKind::Processing;
        let grows = after.tries >= before.tries || given_back || redriven;
        found.unless(grows, "attempts only grow", tell);
        self.stored_starts += after.tries.saturating_sub(before.tries);
        self.given_back += u32::from(given_back);
        let taken = matches!(
            verb,
            Verb::Trigger | Verb::OwnerLost | Verb::Abandon | Verb::Trash
        );
        self.claims_lost += u32::from(taken && before.kind() == StateKind::Claimed);
        let token = before.state.token().map(Token::get).unwrap_or_default();
        if verb == Verb::Finish && after.kind() == StateKind::Succeeded {
            let ran = self.succeeded.contains(&token);
            found.unless(ran, "success means that this very attempt ran well", tell);
        } else if verb == Verb::Finish {
            let ran = self.began.contains_key(&token);
            found.unless(ran, "an outcome means that this very attempt ran", tell);
        }
        if verb == Verb::Trigger {
            let due = before.state.trigger_at().unwrap_or(Timestamp::MAX);
            found.unless(
                step.at >= due,
                "nothing is taken back before its time",
                tell,
            );
        }
    }

    fn check_wait(&mut self, step: &Step<'_>, found: &mut Found) {
        let waits_until = self.waits_until.take();
        match (step.verb, &step.after.state) {
            (Verb::Modify | Verb::Cancel | Verb::Drop, _) => {}
            (_, State::Retriable { retry_at }) => {
                // A writer that was held up told an older time; what matters is that it waits as long as it says.
                let wait = retry_at.since(step.after.changed_at);
                self.waits_until = Some(step.told.after(wait));
            }
            _ => {
                let in_time = waits_until.is_none_or(|until| step.at >= until);
                found.unless(in_time, "the backoff is honoured", || step.to_string());
            }
        }
    }

    fn take_token(&mut self, task: &Task, found: &mut Found) {
        let token = task.state.token();
        if let Some(token) = token {
            found.unless(
                !self.retired.contains(&token.get()),
                "a token never comes back",
                || format!("task {} with token {token}", task.id),
            );
        }
        if self.token != token {
            self.retired.extend(self.token.map(Token::get));
            self.token = token;
        }
    }

    fn take_owner(&mut self, task: &Task, found: &mut Found) {
        let (Some(token), Some(lease)) = (task.state.token(), task.lease()) else {
            return;
        };
        let owner = self
            .owners
            .entry(token.get())
            .or_insert_with(|| lease.worker.clone());
        found.unless(*owner == lease.worker, "one owner per token", || {
            format!("task {}: {owner} and {}", task.id, lease.worker)
        });
    }

    /// What must hold when everything is over.
    pub(super) fn end(&self, id: &TaskId, checker: &Checker, found: &mut Found) {
        let Some(task) = &self.last else {
            found.unless(false, "no ghosts", || format!("task {id} was never stored"));
            return;
        };
        let began: u32 = self.began.values().sum();
        // A crash between a claim and a durable start costs no try but may have run something; it counts as a loss.
        let allowed = self.stored_starts + self.claims_lost;
        let unended = u32::from(task.kind() == StateKind::Claimed);
        found.unless(began <= allowed + unended, "the run budget", || {
            format!("task {id} ran {began} times, the store knows of {allowed}")
        });
        if let Some(retries_max) = checker.policy(task).retry.retries_max {
            let budget = (retries_max + 1) * (self.redriven + 1) + self.given_back;
            found.unless(self.stored_starts <= budget, "the run budget", || {
                format!("task {id} started {} times", self.stored_starts)
            });
        }
    }
}
