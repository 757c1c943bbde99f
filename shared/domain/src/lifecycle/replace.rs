//! A later submit with the same key replaces a task whose run has not begun.

use super::{Modification, MoveContext, Reason, Rejected, Replacement, Transition};
use crate::{State, unique};

pub(super) fn replace(
    context: &MoveContext<'_>,
    new: &Replacement,
) -> Result<Transition, Rejected> {
    let task = context.task;
    match &task.state {
        state if state.kind().is_final() => return Err(context.reject(Reason::Finished)),
        state if state.kind().is_owned() => return Err(context.reject(Reason::Running)),
        // A run has left a checkpoint or a history, which belong to the content that it had.
        _ if !task.is_untouched() => return Err(context.reject(Reason::AlreadyStarted)),
        _ => {}
    }
    let run_at = new.change.run_at.unwrap_or(task.run_at);
    let is_due = run_at <= context.now;
    let state = match (&task.state, new.token.filter(|_| is_due)) {
        (waiting @ State::Waiting { .. }, _) => waiting.clone(),
        // A message that is already queued becomes stale.
        (_, Some(token)) => State::Enqueued {
            token,
            expires_at: unique::enqueue_timeout_end(task, context.policy, context.now),
        },
        (_, None) => State::New {
            due_at: run_at.max(context.now),
        },
    };
    let modified = Box::new(Modification {
        run_at: Some(run_at),
        ..new.change.clone()
    });
    Ok(Transition {
        modified: Some(modified),
        options: Some(unique::replaced_options(task, new.options.as_deref())),
        ..context.to(state)
    })
}
