//! The owner gives up the task without an outcome.

use super::{MoveContext, Rejected, Transition};
use crate::{RunEnd, State, Token};

pub(super) fn abandon(
    context: &MoveContext<'_>,
    token: Token,
    next: Token,
) -> Result<Transition, Rejected> {
    let task = context.task;
    let run = match &task.state {
        State::Claimed { token: current, .. } if *current == token => None,
        State::Processing { token: current, .. } if *current == token => {
            let started_at = task.started_at.unwrap_or(task.changed_at);
            let why = "abandoned by the worker";
            Some(context.run_record(started_at, RunEnd::Abandoned, why))
        }
        _ => return Err(context.reject_worker(token)),
    };
    // The worker chose to stop and the run did not fail, so the run uses no try.
    let tries = task.tries.saturating_sub(u32::from(run.is_some()));
    let transition = if task.cancel_requested {
        context.end(State::Cancelled, None)
    } else {
        context.enqueue(next)
    };
    Ok(Transition {
        tries,
        run,
        ..transition
    })
}
