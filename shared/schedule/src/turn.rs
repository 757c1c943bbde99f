//! What a consumer does with a schedule when its time has come.

use std::time::Duration;

use dueline_domain::{
    FiringEnd, FiringRecord, FiringTask, OverlapDecision, QueuedFiring, Schedule, TaskId,
    Timestamp, UnfinishedFirings,
};

use crate::{catch_up::DueFirings, firing::ScheduleKey, rule::Rule};

/// Most firings of a requested range that one turn carries out.
const BACKFILL_FIRINGS_MAX: usize = 200;

/// Shortest and longest time until the tasks are read again for which a firing waits.
const CHECK_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// What became of the task of an active firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FiringStatus {
    /// It waits for a worker or a retry, or it runs.
    Unfinished,
    /// It has ended.
    Ended,
    /// The store does not have it, although no retention can have deleted it yet.
    Missing,
}

/// What a consumer does with a schedule: cancel some tasks, create others, then store the schedule as it is afterwards.
///
/// The tasks are created first. Their ids follow from the schedule and the nominal time, so after a crash in between the
/// next turn creates nothing twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Tasks of earlier firings to cancel, running ones too.
    pub cancel: Vec<TaskId>,
    /// Tasks to create, in the order of their nominal times.
    pub create: Vec<FiringTask>,
    /// The schedule afterwards.
    pub after: Schedule,
    /// Firings whose tasks were missing.
    missing: Vec<Timestamp>,
}

impl Turn {
    /// Decides what is due at `now`. `active` says what became of each of [`Schedule::active`]. `None` when nothing
    /// changes.
    pub fn of(
        schedule: &Schedule,
        rule: &Rule,
        now: Timestamp,
        active: &[FiringStatus],
    ) -> Option<Self> {
        let mut turn = Self {
            cancel: Vec::new(),
            create: Vec::new(),
            after: schedule.clone(),
            missing: Vec::new(),
        };
        turn.follow_up(schedule, rule, active);
        turn.release_queued(rule);
        for requested_at in std::mem::take(&mut turn.after.triggers) {
            turn.fire(requested_at, requested_at);
        }
        if turn.after.paused.is_none() {
            turn.fire_rule(rule, now);
        }
        turn.fire_backfills(rule);
        turn.check_queued_later(now);
        if turn.create.is_empty() && turn.cancel.is_empty() && turn.after == *schedule {
            return None;
        }
        turn.create.sort_unstable_by_key(|task| task.nominal_at);
        turn.after.changed_at = turn.after.changed_at.max(now);
        Some(turn)
    }

    /// Records that the task of a firing was refused.
    pub fn refused(&mut self, nominal_at: Timestamp, why: &str) {
        self.forget_created(nominal_at);
        let after = &mut self.after;
        after.active.retain(|active| *active != nominal_at);
        after.counts.failed += 1;
        after.record(FiringRecord {
            info: why.into(),
            ..one(nominal_at, FiringEnd::Failed)
        });
    }

    /// Forgets the active firings that have ended, and creates the tasks again that are missing.
    fn follow_up(&mut self, schedule: &Schedule, rule: &Rule, statuses: &[FiringStatus]) {
        // A firing without a status is kept: its task was not read.
        let statuses = statuses
            .iter()
            .copied()
            .chain(std::iter::repeat(FiringStatus::Unfinished));
        self.after.active.clear();
        for (nominal_at, status) in schedule.active.iter().copied().zip(statuses) {
            if status == FiringStatus::Missing {
                self.after.counts.repaired += 1;
                self.missing.push(nominal_at);
                self.create.push(task(schedule, rule, nominal_at));
            }
            if status != FiringStatus::Ended {
                self.after.active.push(nominal_at);
            }
        }
    }

    fn release_queued(&mut self, rule: &Rule) {
        if let Some(QueuedFiring { nominal_at, .. }) = self.after.queued
            && self.after.spec.overlap.releases(self.unfinished())
        {
            self.after.queued = None;
            let due_at = task(&self.after, rule, nominal_at).due_at;
            self.create(nominal_at, due_at);
        }
    }

    fn fire_rule(&mut self, rule: &Rule, now: Timestamp) {
        if self.after.next_at.is_none_or(|next_at| next_at > now) {
            return;
        }
        let spec = &self.after.spec;
        let left = spec
            .firings_max
            .map(|max| max.saturating_sub(self.after.counts.fired));
        let due = DueFirings::decide(spec.catch_up, rule, self.after.decided_until, now, left);
        self.after.decided_until = self.after.decided_until.max(now);
        self.after.next_at = due.next;
        if let Some(missed) = due.skipped {
            self.after.counts.missed += missed.count;
            self.after.record(FiringRecord {
                first: missed.first,
                last: missed.last,
                count: missed.count,
                end: FiringEnd::Missed,
                info: "no consumer ran in time".into(),
            });
        }
        for nominal_at in due.firings {
            let due_at = task(&self.after, rule, nominal_at).due_at;
            if self.fire(nominal_at, due_at) {
                self.after.counts.fired += 1;
            }
        }
    }

    /// Carries a firing out as the overlap policy says. Answers whether it was not skipped.
    fn fire(&mut self, nominal_at: Timestamp, due_at: Timestamp) -> bool {
        let after = &mut self.after;
        let unfinished = UnfinishedFirings {
            active: after.active.len() as u64,
            queued: after.queued.is_some().into(),
        };
        match after.spec.overlap.decide(unfinished) {
            OverlapDecision::Create => self.create(nominal_at, due_at),
            OverlapDecision::Queue => {
                after.queued = Some(QueuedFiring {
                    nominal_at,
                    check_at: nominal_at,
                });
            }
            OverlapDecision::Skip => {
                after.counts.skipped += 1;
                after.record(FiringRecord {
                    info: "a task of an earlier firing is unfinished".into(),
                    ..one(nominal_at, FiringEnd::Skipped)
                });
                return false;
            }
            OverlapDecision::CancelAndCreate => {
                if let Some(queued) = after.queued.take() {
                    self.replaced(queued.nominal_at);
                }
                self.cancel_active();
                self.create(nominal_at, due_at);
            }
        }
        true
    }

    /// Cancels the tasks of the active firings. Those that this turn was about to create are not created. They are
    /// cancelled all the same, because an interrupted turn may have created them.
    fn cancel_active(&mut self) {
        for nominal_at in std::mem::take(&mut self.after.active) {
            let id = key(&self.after).task_id(nominal_at);
            if !self.cancel.contains(&id) {
                self.cancel.push(id);
            }
            let before = self.create.len();
            self.create.retain(|task| task.id != id);
            if self.create.len() == before {
                self.after.active.push(nominal_at);
            } else if self.missing.contains(&nominal_at) {
                self.after.counts.repaired -= 1;
            } else {
                self.forget_created(nominal_at);
                self.replaced(nominal_at);
            }
        }
    }

    /// Records that a firing gave way to a later one.
    fn replaced(&mut self, nominal_at: Timestamp) {
        self.after.counts.skipped += 1;
        self.after.record(FiringRecord {
            info: "replaced by a later firing".into(),
            ..one(nominal_at, FiringEnd::Dropped)
        });
    }

    /// Takes back that this turn created the task of a firing.
    fn forget_created(&mut self, nominal_at: Timestamp) {
        let after = &mut self.after;
        after.recent.retain(|record| {
            record.end != FiringEnd::Created
                || record.first != nominal_at
                || record.last != nominal_at
        });
        after.counts.created = after.counts.created.saturating_sub(1);
    }

    /// Carries out some firings of the ranges that users have requested. The overlap policy does not apply to them: it
    /// would skip most.
    fn fire_backfills(&mut self, rule: &Rule) {
        let mut left = BACKFILL_FIRINGS_MAX;
        let key_of = self.after.clone();
        for backfill in &mut self.after.backfills {
            let firings = rule.between(backfill.from, backfill.to, left);
            left -= firings.times.len();
            for nominal_at in &firings.times {
                self.create.push(FiringTask {
                    nominal_at: *nominal_at,
                    id: key(&key_of).task_id(*nominal_at),
                    due_at: *nominal_at,
                });
            }
            let done = firings.times.len() as u64;
            if let (Some(first), Some(last)) = (firings.times.first(), firings.times.last()) {
                self.after.counts.created += done;
                let record = FiringRecord {
                    first: *first,
                    last: *last,
                    count: done,
                    end: FiringEnd::Created,
                    info: "backfill".into(),
                };
                self.after.recent.push(record);
            }
            backfill.from = firings.rest.unwrap_or(backfill.to);
        }
        self.after.backfills.retain(|range| range.from < range.to);
        let excess = self.after.recent.len();
        let excess = excess.saturating_sub(Schedule::RECENT_MAX);
        self.after.recent.drain(..excess);
    }

    /// The longer a firing has waited, the longer it waits for the next check, because each check is a write.
    fn check_queued_later(&mut self, now: Timestamp) {
        if let Some(queued) = &mut self.after.queued
            && queued.check_at <= now
        {
            let waited = now.since(queued.nominal_at);
            let wait = (waited / 4).clamp(CHECK_AFTER.0, CHECK_AFTER.1);
            queued.check_at = now.after(wait);
        }
    }

    fn create(&mut self, nominal_at: Timestamp, due_at: Timestamp) {
        let id = key(&self.after).task_id(nominal_at);
        self.create.push(FiringTask {
            nominal_at,
            id,
            due_at,
        });
        let after = &mut self.after;
        after.counts.created += 1;
        after.record(one(nominal_at, FiringEnd::Created));
        after.active.push(nominal_at);
        let excess = after.active.len().saturating_sub(Schedule::ACTIVE_MAX);
        after.active.drain(..excess);
    }

    fn unfinished(&self) -> UnfinishedFirings {
        UnfinishedFirings {
            active: self.after.active.len() as u64,
            queued: self.after.queued.is_some().into(),
        }
    }
}

/// What identifies the firings of a schedule.
pub(crate) const fn key(schedule: &Schedule) -> ScheduleKey<'_> {
    let Schedule { job, name, .. } = schedule;
    ScheduleKey { job, name }
}

fn task(schedule: &Schedule, rule: &Rule, nominal_at: Timestamp) -> FiringTask {
    let key = key(schedule);
    FiringTask {
        nominal_at,
        id: key.task_id(nominal_at),
        due_at: key.due_at(rule, nominal_at, schedule.spec.jitter),
    }
}

fn one(nominal_at: Timestamp, end: FiringEnd) -> FiringRecord {
    FiringRecord {
        first: nominal_at,
        last: nominal_at,
        count: 1,
        end,
        info: std::sync::Arc::default(),
    }
}
