//! The owner stores the input of later runs; this also renews the lease.

use bytes::Bytes;

use super::{MoveContext, Rejected, Transition, heartbeat};
use crate::{State, Token};

pub(super) fn checkpoint(
    context: &MoveContext<'_>,
    token: Token,
    payload: &Bytes,
) -> Result<Transition, Rejected> {
    match &context.task.state {
        State::Processing {
            token: current,
            lease,
        } if *current == token => {
            let lease = heartbeat::renewed(context, lease)?;
            Ok(Transition {
                checkpoint: Some(payload.clone()),
                ..context.to(State::Processing { token, lease })
            })
        }
        _ => Err(context.reject_worker(token)),
    }
}
