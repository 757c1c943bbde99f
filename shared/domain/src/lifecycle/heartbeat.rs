//! The owner is alive, or wants its lease to end at another time.

use std::time::Duration;

use super::{Reason, Rejected, Step, Transition};
use crate::{Lease, State, Timestamp, Token};

pub(super) fn heartbeat(step: &Step<'_>, token: Token) -> Result<Transition, Rejected> {
    let State::Processing { token: held, lease } = &step.task.state else {
        return Err(step.reject_worker(token));
    };
    if *held != token {
        return Err(step.reject_worker(token));
    }
    let lease = renewed(step, lease)?;
    Ok(step.to(State::Processing { token, lease }))
}

/// The lease after a sign of life: it ends at the later of its present end and now plus the increment. One that has
/// lapsed is not renewed, even if the watchdog has not come by yet.
pub(super) fn renewed(step: &Step<'_>, lease: &Lease) -> Result<Lease, Rejected> {
    if lease.ends_at() <= step.now {
        return Err(step.reject(Reason::Expired));
    }
    let increment = step.policy.heartbeat_increment;
    Ok(Lease {
        heartbeat_at: step.now,
        expires_at: lease.expires_at.max(step.now.after(increment)),
        ..lease.clone()
    })
}

pub(super) fn extend(step: &Step<'_>, token: Token, by: Duration) -> Result<Transition, Rejected> {
    let set = |lease: &Lease| -> Result<Lease, Rejected> {
        if lease.ends_at() <= step.now {
            return Err(step.reject(Reason::Expired));
        }
        let expires_at: Timestamp = step.now.after(by);
        Ok(Lease {
            heartbeat_at: step.now,
            expires_at,
            ..lease.clone()
        })
    };
    match &step.task.state {
        State::Claimed { token: held, lease } if *held == token => {
            let lease = set(lease)?;
            Ok(step.to(State::Claimed { token, lease }))
        }
        State::Processing { token: held, lease } if *held == token => {
            let lease = set(lease)?;
            Ok(step.to(State::Processing { token, lease }))
        }
        _ => Err(step.reject_worker(token)),
    }
}
