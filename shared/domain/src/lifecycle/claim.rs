//! A worker takes ownership.

use super::{Claim, ClaimChosen, ClaimLifetime, MoveContext, Reason, Rejected, Transition, start};
use crate::{Lease, State, Timestamp, WorkerId};

pub(super) fn claim(context: &MoveContext<'_>, claim: &Claim) -> Result<Transition, Rejected> {
    let State::Enqueued { token, .. } = context.task.state else {
        // The message is stale, also where the task waits for its time.
        return Err(unclaimable(context));
    };
    if token != claim.token {
        return Err(context.reject(Reason::Lost));
    }
    let lease = lease(context, &claim.worker, ClaimLifetime::OfJob);
    // A try is used when a run begins. If the answer to this claim gets lost, a started run is lost with it. A task
    // that has only one try would then fail without having run, so its run starts with a separate write.
    if claim.start && context.policy.retry.allows_after(1) {
        return Ok(start::begin(context, token, lease, context.now));
    }
    Ok(context.to(State::Claimed { token, lease }))
}

/// Claims a task without its message: an enqueued one, or one whose time has come while its message was not sent yet. A
/// message that is on its way becomes stale.
pub(super) fn claim_chosen(
    context: &MoveContext<'_>,
    claim: &ClaimChosen,
) -> Result<Transition, Rejected> {
    match context.task.state {
        State::Enqueued { .. } => {}
        State::New { due_at: at } | State::Retriable { retry_at: at } if at <= context.now => {}
        _ => return Err(unclaimable(context)),
    }
    let lease = lease(context, &claim.worker, claim.lifetime);
    let token = claim.token;
    Ok(context.to(State::Claimed { token, lease }))
}

/// The refusal of a claim in a state in which none is possible.
fn unclaimable(context: &MoveContext<'_>) -> Rejected {
    context.reject(match &context.task.state {
        state if state.kind().is_final() => Reason::Finished,
        state if state.kind().is_owned() => Reason::AlreadyClaimed,
        State::Waiting { .. } => Reason::Waiting,
        _ => Reason::NotDue,
    })
}

/// The lease of a claim that begins now.
fn lease(context: &MoveContext<'_>, worker: &WorkerId, lifetime: ClaimLifetime) -> Lease {
    let now = context.now;
    Lease {
        worker: worker.clone(),
        claimed_at: now,
        heartbeat_at: now,
        expires_at: match lifetime {
            ClaimLifetime::OfJob => now.after(context.policy.claim_timeout),
            ClaimLifetime::For(lifetime) => now.after(lifetime),
            ClaimLifetime::Never => Timestamp::MAX,
        },
        deadline_at: None,
    }
}
