//! The owner begins to run the task; from here on a try is used.

use super::{Rejected, Step, Transition};
use crate::{Lease, State, Timestamp, Token};

pub(super) fn start(step: &Step<'_>, token: Token) -> Result<Transition, Rejected> {
    match &step.task.state {
        State::Claimed { token: held, lease } if *held == token => {
            Ok(begin(step, token, lease.clone(), step.now))
        }
        _ => Err(step.reject_worker(token)),
    }
}

/// The move into `processing` of a run that began at `started_at`.
pub(super) fn begin(
    step: &Step<'_>,
    token: Token,
    lease: Lease,
    started_at: Timestamp,
) -> Transition {
    let policy = step.policy;
    let lease = Lease {
        heartbeat_at: step.now,
        expires_at: step.now.after(policy.heartbeat_timeout),
        deadline_at: policy.run_timeout.map(|max| started_at.after(max)),
        ..lease
    };
    Transition {
        tries: step.task.tries.saturating_add(1),
        started_at: Some(started_at),
        ..step.to(State::Processing { token, lease })
    }
}
