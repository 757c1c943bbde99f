//! A passed trigger time brings every task back here, whatever state it is in.

use super::{Reason, Rejected, Step, Transition, Trigger, lost};
use crate::{State, Token};

pub(super) fn trigger(step: &Step<'_>, trigger: &Trigger) -> Result<Transition, Rejected> {
    let task = step.task;
    if task.kind().is_final() {
        return Err(step.reject(Reason::Finished));
    }
    let Some(trigger_at) = task.state.trigger_at() else {
        return Err(step.reject(Reason::Waiting));
    };
    // The compare of compare-and-set: what the consumer saw must still be so.
    if (trigger.seen, trigger.seen_at) != (task.kind(), trigger_at) {
        return Err(step.reject(Reason::Moved));
    }
    if step.now < trigger_at {
        return Err(step.reject(Reason::NotDue));
    }
    Ok(match &task.state {
        State::New { .. } | State::Enqueued { .. } | State::Retriable { .. } => {
            step.hand_on(trigger.token)
        }
        State::Claimed { .. } => lost::claim_lost(step, trigger.token),
        State::Processing { lease, .. } => {
            let why = match lease.deadline_at {
                Some(deadline) if deadline <= step.now => "ran past its run timeout",
                _ => "nothing was heard of the worker within the heartbeat timeout",
            };
            lost::run_lost(step, trigger.token, trigger.jitter, why)
        }
        // The states without a trigger time were turned away above.
        _ => return Err(step.reject(Reason::Finished)),
    })
}

pub(super) fn release(step: &Step<'_>, token: Token) -> Result<Transition, Rejected> {
    match step.task.state {
        State::Waiting if step.task.run_at > step.now => Ok(step.to(State::New {
            due_at: step.task.run_at,
        })),
        State::Waiting => Ok(step.hand_on(token)),
        _ => Err(step.reject(Reason::NotWaiting)),
    }
}
