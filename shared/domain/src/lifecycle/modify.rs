//! A user changes a task that nobody owns.

use super::{Modification, Reason, Rejected, Step, Transition};
use crate::{State, Token};

pub(super) fn modify(
    step: &Step<'_>,
    change: &Modification,
    token: Token,
) -> Result<Transition, Rejected> {
    let state = match (&step.task.state, change.run_at) {
        (state, _) if state.kind().is_final() => return Err(step.reject(Reason::Finished)),
        (state, _) if state.kind().is_owned() => return Err(step.reject(Reason::Running)),
        (State::Waiting, _) => State::Waiting,
        // Whatever it was: with a new time it waits for that time. A message already queued is stale then.
        (_, Some(at)) => State::New {
            due_at: at.max(step.now),
        },
        // The queued message tells the old priority, so a new one takes its place.
        (State::Enqueued { .. }, None) => step.hand_on(token).state,
        (state, None) => state.clone(),
    };
    let run_at = change.run_at.map(|at| at.max(step.now));
    let modified = Box::new(Modification {
        run_at,
        ..change.clone()
    });
    Ok(Transition {
        modified: Some(modified),
        ..step.to(state)
    })
}
