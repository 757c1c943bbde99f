//! A worker takes ownership.

use super::{Claim, Reason, Rejected, Step, Transition, start};
use crate::{Lease, State};

pub(super) fn claim(step: &Step<'_>, claim: &Claim) -> Result<Transition, Rejected> {
    let State::Enqueued { token, .. } = step.task.state else {
        return Err(step.reject(match &step.task.state {
            state if state.kind().is_final() => Reason::Finished,
            state if state.kind().is_owned() => Reason::AlreadyClaimed,
            State::Waiting => Reason::Waiting,
            // A message of an earlier hand-on: the task waits for its time now.
            _ => Reason::NotDue,
        }));
    };
    if token != claim.token {
        return Err(step.reject(Reason::Lost));
    }
    let lease = Lease {
        worker: claim.worker.clone(),
        claimed_at: step.now,
        heartbeat_at: step.now,
        expires_at: step.now.after(step.policy.claim_timeout),
        deadline_at: None,
    };
    // A try is used when a run begins. Where there is only one, an answer to this very claim that gets lost would fail a
    // task that never ran: its run begins with a write of its own.
    if claim.start && step.policy.retry.allows_after(1) {
        return Ok(start::begin(step, token, lease, step.now));
    }
    Ok(step.to(State::Claimed { token, lease }))
}
