//! The hint of the due index: a time that is never later than the task's trigger time.
//!
//! Moving the hint costs two write units. So a write leaves the hint where it is as long as it is not later than the
//! trigger time and not far behind it. `due/design.md` explains how the index is read.

use std::time::Duration;

use dueline_domain::{Lease, Policy, State, Task, Timestamp};

/// How far the hint may be behind the trigger time before the next write of an owner or of a retry moves it. Each scan
/// reads the entries whose hint has passed.
pub(crate) const BEHIND_MAX: Duration = Duration::from_secs(120);
/// Shortest first backoff that the hint lead takes into account. With a shorter backoff a failure moves the hint
/// instead.
const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// The hint lead of an enqueued or owned task: the shortest time from its last change to its next trigger time.
pub(crate) fn hint_lead(policy: &Policy) -> Duration {
    let timeouts = policy
        .enqueue_timeout
        .min(policy.claim_timeout)
        .min(policy.heartbeat_timeout)
        .min(policy.run_timeout.unwrap_or(Duration::MAX));
    let first_backoff = policy.retry.standard.initial();
    if first_backoff < BACKOFF_MIN {
        return timeouts;
    }
    timeouts.min(first_backoff)
}

/// Shortest and longest time for which a checked task is remembered as not due. A change by another process, such as a
/// user's new due time or a retry with a short backoff, is noticed at most that much later.
const RECHECK_AFTER: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));
/// Average time between two rechecks of tasks of one partition of the index.
const RECHECK_SPACING: Duration = Duration::from_millis(5);

/// The hint of `task` after a write, given the hint before. `None` removes the task from the index.
pub(crate) fn hint(before: Option<Timestamp>, task: &Task, job: &Policy) -> Option<Timestamp> {
    if task.kind().is_final() && task.owed.is_none() {
        return None;
    }
    // Every other task has a trigger time.
    let trigger_at = task.trigger_at()?;
    let Some(before) = before else {
        return Some(new_hint(task, job, trigger_at));
    };
    let is_enqueued = matches!(task.state, State::Enqueued { .. });
    if trigger_at < before || (!is_enqueued && trigger_at.since(before) > BEHIND_MAX) {
        return Some(new_hint(task, job, trigger_at));
    }
    Some(before)
}

fn new_hint(task: &Task, job: &Policy, trigger_at: Timestamp) -> Timestamp {
    match task.state {
        State::Waiting { .. } | State::New { .. } | State::Retriable { .. } => trigger_at,
        _ if task.owed.is_some() => trigger_at,
        // A claim that its owner has made long stays out of the scans. The start of its run may move the hint back.
        State::Claimed { .. } if is_long_claim(task, job) => trigger_at,
        _ => trigger_at.min(task.changed_at.after(hint_lead(&task.policy(job)))),
    }
}

/// Whether the claim of a task lasts longer than its job would let it.
fn is_long_claim(task: &Task, job: &Policy) -> bool {
    let ends = |lease: &Lease| lease.ends_at().since(task.changed_at);
    let policy = task.policy(job);
    task.lease()
        .is_some_and(|lease| ends(lease) > policy.claim_timeout)
}

/// How long a task that was checked and not due is remembered as such, when `entries` tasks of its partition have
/// passed hints. The time grows with their number, so that the rechecks of one partition stay at two hundred a second,
/// which are a hundred read units.
pub(crate) fn recheck_after(policy: &Policy, entries: usize) -> Duration {
    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
    let spaced = RECHECK_SPACING.saturating_mul(entries);
    hint_lead(policy)
        .max(spaced)
        .clamp(RECHECK_AFTER.0, RECHECK_AFTER.1)
}
