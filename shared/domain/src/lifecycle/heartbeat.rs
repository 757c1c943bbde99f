//! The owner renews its lease, or sets a new end of it.

use std::time::Duration;

use super::{MoveContext, Reason, Rejected, Transition};
use crate::{Lease, State, Token};

pub(super) fn heartbeat(context: &MoveContext<'_>, token: Token) -> Result<Transition, Rejected> {
    let State::Processing {
        token: current,
        lease,
    } = &context.task.state
    else {
        return Err(context.reject_worker(token));
    };
    if *current != token {
        return Err(context.reject_worker(token));
    }
    let lease = renewed(context, lease)?;
    Ok(context.to(State::Processing { token, lease }))
}

/// The renewed lease: it ends at the later of its present end and now plus the increment.
pub(super) fn renewed(context: &MoveContext<'_>, lease: &Lease) -> Result<Lease, Rejected> {
    check_limits(context, lease)?;
    let increment = context.policy.heartbeat_increment;
    let lease = Lease {
        heartbeat_at: context.now,
        expires_at: lease.expires_at.max(context.now.after(increment)),
        ..lease.clone()
    };
    Ok(lease.with_grace())
}

/// Refuses a renewal past a limit that no renewal moves: the run timeout, and the end of a lease without an increment.
///
/// The end of any other lease is no such limit. The token decides, not the clock: until the watchdog has reclaimed the
/// task, its owner may renew a lapsed lease. Otherwise a clock that steps forward would end every healthy run.
fn check_limits(context: &MoveContext<'_>, lease: &Lease) -> Result<(), Rejected> {
    let is_fixed = context.policy.heartbeat_increment.is_zero();
    let ends = [lease.run_ends_at(), is_fixed.then_some(lease.expires_at)];
    match ends.into_iter().flatten().any(|end| end <= context.now) {
        true => Err(context.reject(Reason::Expired)),
        false => Ok(()),
    }
}

pub(super) fn extend(
    context: &MoveContext<'_>,
    token: Token,
    by: Duration,
) -> Result<Transition, Rejected> {
    let set = |lease: &Lease| -> Result<Lease, Rejected> {
        check_limits(context, lease)?;
        let lease = Lease {
            heartbeat_at: context.now,
            expires_at: context.now.after(by),
            ..lease.clone()
        };
        Ok(lease.with_grace())
    };
    match &context.task.state {
        State::Claimed {
            token: current,
            lease,
        } if *current == token => {
            let lease = set(lease)?;
            Ok(context.to(State::Claimed { token, lease }))
        }
        State::Processing {
            token: current,
            lease,
        } if *current == token => {
            let lease = set(lease)?;
            Ok(context.to(State::Processing { token, lease }))
        }
        _ => Err(context.reject_worker(token)),
    }
}
