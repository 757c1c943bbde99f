//! A user changes a task that has no owner.

use super::{Modification, MoveContext, Reason, Rejected, Transition};
use crate::{State, Token};

pub(super) fn modify(
    context: &MoveContext<'_>,
    change: &Modification,
    token: Token,
) -> Result<Transition, Rejected> {
    let state = match (&context.task.state, change.run_at) {
        (state, _) if state.kind().is_final() => return Err(context.reject(Reason::Finished)),
        (state, _) if state.kind().is_owned() => return Err(context.reject(Reason::Running)),
        (waiting @ State::Waiting { .. }, _) => waiting.clone(),
        // With a new time the task waits for that time. A message that is already queued becomes stale.
        (_, Some(at)) => State::New {
            due_at: at.max(context.now),
        },
        // The queued message carries the old priority, so a new message replaces it.
        (State::Enqueued { .. }, None) => context.enqueue(token).state,
        (state, None) => state.clone(),
    };
    let run_at = change.run_at.map(|at| at.max(context.now));
    let modified = Box::new(Modification {
        run_at,
        ..change.clone()
    });
    Ok(Transition {
        modified: Some(modified),
        ..context.to(state)
    })
}
