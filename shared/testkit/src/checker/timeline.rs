//! The history of one task.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use dueline_domain::{
    Effect, State, StateKind, Task, TaskId, Timestamp, Token, Verb, WorkerId, check_transition,
};

use super::{Checker, Violations};
use crate::{HistoryEntry, HistoryEvent};

/// The state of one task while its history is read.
#[derive(Default)]
pub(super) struct TaskTimeline {
    last: Option<Task>,
    just_succeeded: bool,
    /// The present token, and all earlier ones.
    token: Option<Token>,
    retired: BTreeSet<u64>,
    owners: BTreeMap<u64, WorkerId>,
    /// User code by token: how many times it began, and whether it returned a success.
    began: BTreeMap<u64, u32>,
    succeeded: BTreeSet<u64>,
    /// Number of stored starts, abandoned runs, claims lost before a start, and redrives.
    stored_starts: u32,
    abandoned: u32,
    claims_lost: u32,
    redriven: u32,
    /// The ends of the task, and those whose records were delivered.
    ends: BTreeSet<Timestamp>,
    delivered: BTreeSet<Timestamp>,
    /// When the wait of the latest retry ends, by the clock of the writer that stored the failure.
    waits_until: Option<Timestamp>,
}

/// One accepted write.
struct AcceptedWrite<'a> {
    /// The latest time that any clock can have shown at the write.
    at: Timestamp,
    /// The time by the writer's clock.
    writer_time: Timestamp,
    verb: Verb,
    before: &'a Task,
    after: &'a Task,
}

impl fmt::Display for AcceptedWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, from, to) = (self.after.id, &self.before.state, &self.after.state);
        write!(
            f,
            "{} of task {id} by {}: {from:?} became {to:?}",
            self.verb, self.at
        )
    }
}

impl TaskTimeline {
    pub(super) const fn last(&self) -> Option<&Task> {
        self.last.as_ref()
    }

    pub(super) const fn has_just_succeeded(&self) -> bool {
        self.just_succeeded
    }

    /// Adds an event other than a write.
    pub(super) fn add_event(&mut self, entry: &HistoryEntry, violations: &mut Violations) {
        match &entry.event {
            HistoryEvent::RunStarted { id, token, .. } => {
                let began = self.began.entry(token.get()).or_default();
                *began += 1;
                violations.require(*began == 1, "one run per token", || {
                    format!("task {id} ran {began} times with token {token}")
                });
                let known = self.token == Some(*token) || self.retired.contains(&token.get());
                violations.require(known, "no unknown task or token", || {
                    format!("task {id} ran with token {token}, which was never stored")
                });
            }
            // An outcome of this token may be reported, although user code never began.
            HistoryEvent::RunStopped { token, .. } => {
                self.began.entry(token.get()).or_default();
            }
            HistoryEvent::RunEnded {
                token,
                success: true,
                ..
            } => {
                self.succeeded.insert(token.get());
            }
            HistoryEvent::Delivered { id, finished_at } => {
                let has_ended = self.ends.contains(finished_at);
                violations.require(has_ended, "a record is of a task that has ended", || {
                    format!("task {id} did not end at {finished_at}")
                });
                self.delivered.insert(*finished_at);
            }
            HistoryEvent::MessageDeleted { id, token } => {
                let state = self.last.as_ref().map(|task| &task.state);
                let unclaimed = matches!(state, Some(State::Enqueued { token: current, .. }) if current == token);
                violations.require(
                    !unclaimed,
                    "a message is deleted only after the claim",
                    || format!("task {id} with token {token} at {}", entry.at),
                );
            }
            _ => {}
        }
    }

    /// Adds a write that the store accepted.
    pub(super) fn add_write(
        &mut self,
        entry: &HistoryEntry,
        checker: &Checker,
        violations: &mut Violations,
    ) {
        let HistoryEvent::Stored { verb, now, task } = &entry.event else {
            return;
        };
        let before = self.last.replace((**task).clone());
        self.just_succeeded = task.kind() == StateKind::Succeeded && *verb != Some(Verb::Settle);
        self.ends.extend(task.finished_at);
        match (before, verb) {
            (None, None) => {}
            (Some(before), Some(verb)) => {
                let write = AcceptedWrite {
                    at: entry.at.after(checker.skew_max),
                    writer_time: *now,
                    verb: *verb,
                    before: &before,
                    after: task,
                };
                self.check_write(&write, violations);
                self.check_wait(&write, violations);
            }
            (before, verb) => violations.require(false, "a task is created once", || {
                format!("{verb:?} of task {} after {before:?}", task.id)
            }),
        }
        self.check_token(task, violations);
        self.check_owner(task, violations);
    }

    fn check_write(&mut self, write: &AcceptedWrite<'_>, violations: &mut Violations) {
        let (verb, before, after) = (write.verb, write.before, write.after);
        let detail = || write.to_string();
        let is_legal = check_transition(before, after).is_ok();
        violations.require(is_legal, "only legal transitions", detail);
        let redriven = verb == Verb::Redrive;
        let ended = before.kind().is_final();
        let settled = verb == Verb::Settle;
        let in_family = matches!(
            verb,
            Verb::Follow | Verb::Close | Verb::Revive | Verb::Reopen | Verb::Adopt
        );
        violations.require(
            !ended || redriven || settled || in_family,
            "one final state",
            detail,
        );
        let owes = |task: &Task| {
            let owed = task.owed.as_ref();
            owed.is_some_and(|owed| owed.effects.contains(&Effect::Deliver))
        };
        if settled && owes(before) && !owes(after) {
            let done = before
                .finished_at
                .is_some_and(|at| self.delivered.contains(&at));
            violations.require(done, "no effect is settled before it is done", detail);
        }
        self.redriven += u32::from(redriven);
        let abandoned = verb == Verb::Abandon && before.kind() == StateKind::Processing;
        let may_follow = after.tries >= before.tries || abandoned || redriven;
        violations.require(may_follow, "tries never decrease", detail);
        self.stored_starts += after.tries.saturating_sub(before.tries);
        self.abandoned += u32::from(abandoned);
        let ends_claim = matches!(
            verb,
            Verb::Trigger | Verb::Reclaim | Verb::Abandon | Verb::Trash
        );
        self.claims_lost += u32::from(ends_claim && before.kind() == StateKind::Claimed);
        let token = before.state.token().map(Token::get).unwrap_or_default();
        if verb == Verb::Finish && after.kind() == StateKind::Succeeded {
            let ran = self.succeeded.contains(&token);
            let property = "a success needs a successful run with its token";
            violations.require(ran, property, detail);
        } else if verb == Verb::Finish {
            let ran = self.began.contains_key(&token);
            violations.require(ran, "an outcome needs a run with its token", detail);
        }
        if verb == Verb::Trigger {
            let due = before.state.trigger_at().unwrap_or(Timestamp::MAX);
            violations.require(write.at >= due, "no trigger before its time", detail);
        }
    }

    fn check_wait(&mut self, write: &AcceptedWrite<'_>, violations: &mut Violations) {
        let waits_until = self.waits_until.take();
        match (write.verb, &write.after.state) {
            (Verb::Modify | Verb::Replace | Verb::Cancel | Verb::Drop, _) => {}
            (_, State::Retriable { retry_at }) => {
                // The write of a delayed writer has an older time. The wait is checked from that time on.
                let wait = retry_at.since(write.after.changed_at);
                self.waits_until = Some(write.writer_time.after(wait));
            }
            _ => {
                let in_time = waits_until.is_none_or(|until| write.at >= until);
                violations.require(in_time, "the backoff is respected", || write.to_string());
            }
        }
    }

    fn check_token(&mut self, task: &Task, violations: &mut Violations) {
        let token = task.state.token();
        if let Some(token) = token {
            violations.require(
                !self.retired.contains(&token.get()),
                "a token is never reused",
                || format!("task {} with token {token}", task.id),
            );
        }
        if self.token != token {
            self.retired.extend(self.token.map(Token::get));
            self.token = token;
        }
    }

    fn check_owner(&mut self, task: &Task, violations: &mut Violations) {
        let (Some(token), Some(lease)) = (task.state.token(), task.lease()) else {
            return;
        };
        let owner = self
            .owners
            .entry(token.get())
            .or_insert_with(|| lease.worker.clone());
        violations.require(*owner == lease.worker, "one owner per token", || {
            format!("task {}: {owner} and {}", task.id, lease.worker)
        });
    }

    /// Checks the properties of a whole history.
    pub(super) fn check_end(&self, id: &TaskId, checker: &Checker, violations: &mut Violations) {
        let Some(task) = &self.last else {
            violations.require(false, "no unknown task or token", || {
                format!("task {id} was never stored")
            });
            return;
        };
        let began: u32 = self.began.values().sum();
        // After a crash between a claim and its durable start, user code may have run although the claim counts as
        // lost.
        let allowed = self.stored_starts + self.claims_lost;
        let open_claim = u32::from(task.kind() == StateKind::Claimed);
        violations.require(began <= allowed + open_claim, "runs are limited", || {
            format!(
                "task {id} ran {began} times, but the store has {allowed} starts and lost claims"
            )
        });
        if let Some(retries_max) = checker.policy(task).retry.retries_max {
            let limit = (retries_max + 1) * (self.redriven + 1) + self.abandoned;
            violations.require(self.stored_starts <= limit, "runs are limited", || {
                format!("task {id} started {} times", self.stored_starts)
            });
        }
    }
}
