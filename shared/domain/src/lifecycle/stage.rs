//! A task is about to be submitted from inside the run.

use super::{MoveContext, Rejected, Transition};
use crate::{Family, State, Token};

/// Marks the task with the run that stages tasks, so that the end of the task decides what becomes of them. Only the run in
/// progress can be marked: this compare-and-set decides between a submit from inside the run and the end of the run.
pub(super) fn stage(context: &MoveContext<'_>, token: Token) -> Result<Transition, Rejected> {
    let task = context.task;
    match task.state {
        // The start of the run may not be stored yet.
        State::Claimed { token: current, .. } | State::Processing { token: current, .. }
            if current == token => {}
        _ => return Err(context.reject_worker(token)),
    }
    let family = task.family().cloned().unwrap_or_default();
    Ok(Transition {
        family: Some(Box::new(Family {
            staged: Some(token),
            ..family
        })),
        ..context.to(task.state.clone())
    })
}
