//! The owner ends the task for good without an outcome; its fields stay for review.

use std::sync::Arc;

use super::{MoveContext, Rejected, Transition, error_text};
use crate::{RunEnd, State, Token};

pub(super) fn trash(
    context: &MoveContext<'_>,
    token: Token,
    reason: &Arc<str>,
) -> Result<Transition, Rejected> {
    let task = context.task;
    let run = match &task.state {
        State::Claimed { token: current, .. } if *current == token => None,
        State::Processing { token: current, .. } if *current == token => {
            let started_at = task.started_at.unwrap_or(task.changed_at);
            Some(context.run_record(started_at, RunEnd::Trashed, reason))
        }
        _ => return Err(context.reject_worker(token)),
    };
    Ok(Transition {
        run,
        ..context.end(State::Trashed, Some(error_text(reason)))
    })
}
