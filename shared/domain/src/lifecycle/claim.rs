//! A worker takes ownership.

use super::{Claim, MoveContext, Reason, Rejected, Transition, start};
use crate::{Lease, State};

pub(super) fn claim(context: &MoveContext<'_>, claim: &Claim) -> Result<Transition, Rejected> {
    let State::Enqueued { token, .. } = context.task.state else {
        return Err(context.reject(match &context.task.state {
            state if state.kind().is_final() => Reason::Finished,
            state if state.kind().is_owned() => Reason::AlreadyClaimed,
            State::Waiting { .. } => Reason::Waiting,
            // The message is stale: the task now waits for its time.
            _ => Reason::NotDue,
        }));
    };
    if token != claim.token {
        return Err(context.reject(Reason::Lost));
    }
    let lease = Lease {
        worker: claim.worker.clone(),
        claimed_at: context.now,
        heartbeat_at: context.now,
        expires_at: context.now.after(context.policy.claim_timeout),
        deadline_at: None,
    };
    // A try is used when a run begins. If the answer to this claim gets lost, a started run is lost with it. A task
    // that has only one try would then fail without having run, so its run starts with a separate write.
    if claim.start && context.policy.retry.allows_after(1) {
        return Ok(start::begin(context, token, lease, context.now));
    }
    Ok(context.to(State::Claimed { token, lease }))
}
