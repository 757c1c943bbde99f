//! The hint of the due index: a time that is never later than the trigger time.
//!
//! Moving the hint costs two write units, so it stays where it is while it is still true and not far behind.

use std::time::Duration;

use dueline_domain::{Policy, State, Task, Timestamp};

/// A hint that is further behind than this is moved by the next write of an owner or of a retry: the reader would
/// pass it at every look.
const BEHIND_MAX: Duration = Duration::from_secs(120);
/// Shortest backoff that hints leave room for. With a shorter one a failure moves the hint instead.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// How soon a task that is handed on or owned may have a trigger time, seen from its last change.
pub(crate) fn soonest(policy: &Policy) -> Duration {
    let timeouts = policy
        .enqueue_timeout
        .min(policy.claim_timeout)
        .min(policy.heartbeat_timeout)
        .min(policy.run_timeout.unwrap_or(Duration::MAX));
    let first_wait = policy.retry.standard.initial();
    if first_wait < WAIT_MIN {
        return timeouts;
    }
    timeouts.min(first_wait)
}

/// Shortest and longest time for which a task that was looked at is remembered. What another process does to it
/// meanwhile, such as a user's new date or a retry with a short wait, is seen that much later at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));
/// One of the tasks that stand in a due partition is looked at again so often.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(5);

/// The hint of `task` after a write, given the one before. `None` takes the task out of the index.
pub(crate) fn hint(before: Option<Timestamp>, task: &Task, job: &Policy) -> Option<Timestamp> {
    if task.kind().is_final() {
        return None;
    }
    let Some(trigger_at) = task.state.trigger_at() else {
        // A task that waits for another one is in the index, but no look comes across it.
        return Some(Timestamp::MAX);
    };
    let Some(before) = before else {
        return Some(fresh(task, job, trigger_at));
    };
    let handed_on = matches!(task.state, State::Enqueued { .. });
    if trigger_at < before || (!handed_on && trigger_at.since(before) > BEHIND_MAX) {
        return Some(fresh(task, job, trigger_at));
    }
    Some(before)
}

fn fresh(task: &Task, job: &Policy, trigger_at: Timestamp) -> Timestamp {
    match task.state {
        State::New { .. } | State::Retriable { .. } => trigger_at,
        _ => trigger_at.min(task.changed_at.after(soonest(&task.policy(job)))),
    }
}

/// How long each of `standing` tasks that were looked at need not be looked at again, whatever others do to it
/// meanwhile, at the price of a retry with a very short wait being seen that much later. The more of them stand there,
/// the longer: two hundred a second cost a hundred read units.
pub(crate) fn look_again(policy: &Policy, standing: usize) -> Duration {
    let standing = u32::try_from(standing).unwrap_or(u32::MAX);
    let paced = LOOKED_AT_EVERY.saturating_mul(standing);
    soonest(policy).max(paced).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1)
}
