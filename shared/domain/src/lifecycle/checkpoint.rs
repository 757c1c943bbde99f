//! The owner stores what a later run should get; this counts as a heartbeat.

use bytes::Bytes;

use super::{Rejected, Step, Transition, heartbeat};
use crate::{State, Token};

pub(super) fn checkpoint(
    step: &Step<'_>,
    token: Token,
    payload: &Bytes,
) -> Result<Transition, Rejected> {
    match &step.task.state {
        State::Processing { token: held, lease } if *held == token => {
            let lease = heartbeat::renewed(step, lease)?;
            Ok(Transition {
                checkpoint: Some(payload.clone()),
                ..step.to(State::Processing { token, lease })
            })
        }
        _ => Err(step.reject_worker(token)),
    }
}
