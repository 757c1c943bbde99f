//! The owner begins the run; from here on a try is used.

use super::{MoveContext, Rejected, Transition};
use crate::{Lease, Policy, State, Timestamp, Token};

pub(super) fn start(context: &MoveContext<'_>, token: Token) -> Result<Transition, Rejected> {
    match &context.task.state {
        State::Claimed {
            token: current,
            lease,
        } if *current == token => Ok(begin(context, token, lease.clone(), context.now)),
        _ => Err(context.reject_worker(token)),
    }
}

/// The transition into `processing` for a run that began at `started_at`.
pub(super) fn begin(
    context: &MoveContext<'_>,
    token: Token,
    lease: Lease,
    started_at: Timestamp,
) -> Transition {
    let policy = context.policy;
    let mut expires_at = context.now.after(policy.heartbeat_timeout);
    if lease.expires_at > lease.heartbeat_at.after(policy.claim_timeout) {
        // Its owner has made the claim longer than the job would: the run does not shorten it.
        expires_at = expires_at.max(lease.expires_at);
    }
    let lease = Lease {
        heartbeat_at: context.now,
        expires_at,
        deadline_at: policy
            .run_timeout
            .map(|max| started_at.after(max).after(Policy::RUN_GRACE)),
        ..lease
    };
    let lease = lease.with_grace();
    Transition {
        tries: context.task.tries.saturating_add(1),
        started_at: Some(started_at),
        ..context.to(State::Processing { token, lease })
    }
}
