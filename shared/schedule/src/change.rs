//! Changes of a schedule that users request.

use std::sync::Arc;

use dueline_domain::{
    Backfill, FiringCounts, FiringEnd, FiringRecord, JobName, Schedule, ScheduleName,
    SchedulePause, ScheduleSpec, Timestamp, WriteId,
};

use crate::{error::RuleError, rule::Rule};

/// Most firings of a range that a user requests.
const BACKFILL_FIRINGS_MAX: u64 = 10_000;

/// Why a new rule drops firings.
const CHANGED: &str = "the rule has changed";

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The rule cannot be accepted.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The range ends before it begins.
    #[error("must be later than the beginning of the range")]
    EmptyRange,
    /// The range has no firing.
    #[error("the rule does not fire in this range")]
    NoFiring,
    /// The range has too many firings.
    #[error("the rule fires {0} times in this range; at most {BACKFILL_FIRINGS_MAX} are allowed")]
    TooManyFirings(u64),
    /// Too many requested firings wait.
    #[error("too many requested firings of this schedule wait; try again in a few seconds")]
    TooManyRequests,
}

/// A change of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Other settings. The next firing moves only if the rule or the limit of firings changes.
    Replace(Box<ScheduleSpec>),
    /// The rule fires no more.
    Pause {
        /// Who says so.
        by: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// The rule fires again. What was due meanwhile is skipped.
    Resume,
    /// One firing now, whatever the rule says, also while the schedule is paused.
    Trigger,
    /// All firings of the rule in a range of time, whatever the overlap policy says.
    Backfill(Backfill),
}

impl Change {
    /// A new schedule. Its rule fires after `now`; what lies in the past can be requested as a backfill.
    pub fn create(
        job: JobName,
        name: ScheduleName,
        spec: ScheduleSpec,
        by: Arc<str>,
        now: Timestamp,
        write: WriteId,
    ) -> Result<Schedule, ChangeError> {
        let rule = Rule::parse(&spec.rule)?;
        Ok(Schedule {
            job,
            name,
            spec,
            paused: None,
            decided_until: now,
            next_at: rule.next_after(now),
            active: Vec::new(),
            queued: None,
            triggers: Vec::new(),
            backfills: Vec::new(),
            counts: FiringCounts::default(),
            recent: Vec::new(),
            created_by: by,
            created_at: now,
            changed_at: now,
            write,
        })
    }

    /// The schedule after this change.
    pub fn apply(
        self,
        mut schedule: Schedule,
        now: Timestamp,
        write: WriteId,
    ) -> Result<Schedule, ChangeError> {
        match self {
            Self::Replace(spec) => replace(&mut schedule, *spec, now)?,
            Self::Pause { by, reason } => {
                // A second pause changes the reason; the time of the first one counts.
                let at = schedule.paused.as_ref().map_or(now, |paused| paused.at);
                schedule.paused = Some(SchedulePause { at, by, reason });
            }
            Self::Resume => resume(&mut schedule, now)?,
            Self::Trigger => {
                if schedule.triggers.len() >= Schedule::TRIGGERS_MAX {
                    return Err(ChangeError::TooManyRequests);
                }
                // Two requests within a millisecond are two firings.
                let last = schedule.triggers.last().copied();
                let after_last = last.map(|last| last.after(std::time::Duration::from_millis(1)));
                let at = after_last.map_or(now, |after_last| after_last.max(now));
                schedule.triggers.push(at);
            }
            Self::Backfill(range) => backfill(&mut schedule, range)?,
        }
        schedule.changed_at = schedule.changed_at.max(now);
        schedule.write = write;
        Ok(schedule)
    }
}

fn replace(schedule: &mut Schedule, spec: ScheduleSpec, now: Timestamp) -> Result<(), ChangeError> {
    let rule = Rule::parse(&spec.rule)?;
    let old = std::mem::replace(&mut schedule.spec, spec);
    let spec = &schedule.spec;
    let is_other_rule = old.rule != spec.rule;
    if !is_other_rule && old.firings_max == spec.firings_max {
        return Ok(());
    }
    if is_other_rule && let Some(queued) = schedule.queued.take() {
        schedule.record(FiringRecord {
            first: queued.nominal_at,
            last: queued.nominal_at,
            count: 1,
            end: FiringEnd::Dropped,
            info: CHANGED.into(),
        });
    }
    // The old rule may be one that only another version can read.
    if is_other_rule && let Ok(rule) = Rule::parse(&old.rule) {
        let (end, info) = match schedule.paused {
            Some(_) => (FiringEnd::Paused, ""),
            None => (FiringEnd::Dropped, CHANGED),
        };
        skip_undecided(schedule, &rule, now, end, info);
    }
    let is_over = |max| schedule.counts.fired >= max;
    if schedule.spec.firings_max.is_some_and(is_over) {
        schedule.next_at = None;
    } else if is_other_rule || schedule.next_at.is_none() {
        schedule.decided_until = schedule.decided_until.max(now);
        schedule.next_at = rule.next_after(now);
    }
    Ok(())
}

fn resume(schedule: &mut Schedule, now: Timestamp) -> Result<(), ChangeError> {
    if schedule.paused.take().is_none() || schedule.next_at.is_none_or(|next| next > now) {
        return Ok(());
    }
    let rule = Rule::parse(&schedule.spec.rule)?;
    skip_undecided(schedule, &rule, now, FiringEnd::Paused, "");
    schedule.decided_until = schedule.decided_until.max(now);
    schedule.next_at = rule.next_after(now);
    Ok(())
}

/// Records the firings of a rule up to `now` that no consumer has decided.
fn skip_undecided(
    schedule: &mut Schedule,
    rule: &Rule,
    now: Timestamp,
    end: FiringEnd,
    info: &str,
) {
    if schedule.next_at.is_none_or(|next| next > now) {
        return;
    }
    let millisecond = std::time::Duration::from_millis(1);
    let from = schedule.decided_until.after(millisecond);
    let to = now.after(millisecond);
    let count = rule.count(from, to);
    if let (Some(first), Some(last)) = (
        rule.between(from, to, 1).times.first(),
        rule.from_last(1, from, to),
    ) {
        schedule.record(FiringRecord {
            first: *first,
            last,
            count,
            end,
            info: info.into(),
        });
    }
}

fn backfill(schedule: &mut Schedule, range: Backfill) -> Result<(), ChangeError> {
    if range.to <= range.from {
        return Err(ChangeError::EmptyRange);
    }
    if schedule.backfills.len() >= Schedule::BACKFILLS_MAX {
        return Err(ChangeError::TooManyRequests);
    }
    let rule = Rule::parse(&schedule.spec.rule)?;
    match rule.count(range.from, range.to) {
        0 => Err(ChangeError::NoFiring),
        count if count > BACKFILL_FIRINGS_MAX => Err(ChangeError::TooManyFirings(count)),
        _ => {
            schedule.backfills.push(range);
            Ok(())
        }
    }
}
