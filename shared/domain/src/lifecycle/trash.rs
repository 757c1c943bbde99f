//! The owner takes the task off for good; its fields stay for review.

use std::sync::Arc;

use super::{Rejected, Step, Transition, cut};
use crate::{RunEnd, State, Token};

pub(super) fn trash(
    step: &Step<'_>,
    token: Token,
    reason: &Arc<str>,
) -> Result<Transition, Rejected> {
    let task = step.task;
    let run = match &task.state {
        State::Claimed { token: held, .. } if *held == token => None,
        State::Processing { token: held, .. } if *held == token => {
            let started_at = task.started_at.unwrap_or(task.changed_at);
            Some(step.run(started_at, task.tries, RunEnd::Trashed, reason))
        }
        _ => return Err(step.reject_worker(token)),
    };
    Ok(Transition {
        run,
        ..step.end(State::Trashed, Some(cut(reason)))
    })
}
