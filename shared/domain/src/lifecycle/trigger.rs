//! The trigger time of a task has passed.

use super::{MoveContext, Reason, Rejected, Transition, Trigger, reclaim, release};
use crate::State;

pub(super) fn trigger(
    context: &MoveContext<'_>,
    trigger: &Trigger,
) -> Result<Transition, Rejected> {
    let task = context.task;
    let Some(trigger_at) = task.state.trigger_at() else {
        return Err(context.reject(Reason::Finished));
    };
    // The compare of compare-and-set: the task must still be as the consumer read it.
    if (trigger.seen, trigger.seen_at) != (task.kind(), trigger_at) {
        return Err(context.reject(Reason::Moved));
    }
    if context.now < trigger_at {
        return Err(context.reject(Reason::NotDue));
    }
    Ok(match &task.state {
        State::Waiting { .. } => release::wait_on(context, trigger.token),
        State::New { .. } | State::Enqueued { .. } | State::Retriable { .. } => {
            context.enqueue(trigger.token)
        }
        State::Claimed { .. } => reclaim::claim_lost(context, trigger.token),
        State::Processing { lease, .. } => {
            let why = match lease.run_ends_at() {
                Some(end) if end <= context.now => "ran past its run timeout",
                _ => "no heartbeat arrived within the heartbeat timeout",
            };
            reclaim::run_lost(context, trigger.token, trigger.jitter, why)
        }
        // States without a trigger time were refused above.
        _ => return Err(context.reject(Reason::Finished)),
    })
}
