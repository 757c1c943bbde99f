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
    if claim.start {
        return Ok(start::begin(step, token, lease, step.now));
    }
    Ok(step.to(State::Claimed { token, lease }))
}
