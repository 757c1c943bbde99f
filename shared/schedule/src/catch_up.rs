//! Which firings are due, and which of those are carried out that were missed while no consumer ran.

use std::time::Duration;

use dueline_domain::{CatchUp, CatchUpPolicy, Timestamp};

use crate::rule::{Firings, Rule};

/// The firings of a schedule that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueFirings {
    /// Nominal times of the firings to carry out, ascending.
    pub firings: Vec<Timestamp>,
    /// How many of them, from the beginning, were missed and are made up for.
    pub caught_up: usize,
    /// The missed firings that are skipped for good.
    pub skipped: Option<SkippedFirings>,
    /// The next firing after these.
    pub next: Option<Timestamp>,
}

/// Missed firings that are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedFirings {
    /// How many.
    pub count: u64,
    /// Nominal time of the first.
    pub first: Timestamp,
    /// Nominal time of the last.
    pub last: Timestamp,
}

impl DueFirings {
    /// The firings of `rule` that are later than `decided_until` and not later than `now`, of which at most `left` are
    /// carried out (the rest of the schedule's greatest number of firings).
    ///
    /// `decided_until` is the time up to which all firings were decided: the `now` of the last call, or the last nominal
    /// time. After this call it is `now`. A clock that went back decides nothing twice.
    pub fn decide(
        policy: CatchUpPolicy,
        rule: &Rule,
        decided_until: Timestamp,
        now: Timestamp,
        left: Option<u64>,
    ) -> Self {
        if left == Some(0) {
            return Self::default();
        }
        let from = just_after(decided_until);
        let to = just_after(now).max(from);
        let on_time_from =
            Timestamp::clamped(now.millis() - millis(policy.grace())).clamp(from, to);
        // At most one firing a second, so this list is as short as the grace.
        let on_time = rule.between(on_time_from, to, usize::MAX).times;
        let missed = rule.count(from, on_time_from);
        let kept = match policy.catch_up() {
            CatchUp::None => 0,
            CatchUp::Latest => u64::from(on_time.is_empty()),
            CatchUp::All { max } => max.into(),
        };
        let kept_from = match missed.min(kept) {
            0 => on_time_from,
            kept => rule.from_last(kept, from, on_time_from).unwrap_or(from),
        };
        let Firings { times, .. } = rule.between(kept_from, on_time_from, usize::MAX);
        let mut due = Self {
            caught_up: times.len(),
            firings: times,
            skipped: skipped(rule, from, kept_from),
            next: rule.next_after(now.max(decided_until)),
        };
        due.firings.extend(on_time);
        if let Some(left) = left.and_then(|left| usize::try_from(left).ok())
            && left <= due.firings.len()
        {
            due.firings.truncate(left);
            due.caught_up = due.caught_up.min(left);
            due.next = None;
        }
        due
    }
}

/// The firings of a range as one that is skipped.
fn skipped(rule: &Rule, from: Timestamp, to: Timestamp) -> Option<SkippedFirings> {
    Some(SkippedFirings {
        count: rule.count(from, to),
        first: *rule.between(from, to, 1).times.first()?,
        last: rule.from_last(1, from, to)?,
    })
}

fn just_after(time: Timestamp) -> Timestamp {
    time.after(Duration::from_millis(1))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
