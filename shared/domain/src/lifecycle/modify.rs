//! A user changes a task that has no owner.

use std::time::Duration;

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
        // The queued message carries the old priority, so a new message replaces it. The new timeout ends later than the old
        // one, also where the clock is behind: a consumer that has read the task before this change, to send the old
        // message again, is refused.
        (State::Enqueued { expires_at, .. }, None) => {
            let timeout = context.policy.enqueue_timeout;
            let later = expires_at.after(Duration::from_millis(1));
            State::Enqueued {
                token,
                expires_at: context.now.after(timeout).max(later),
            }
        }
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
