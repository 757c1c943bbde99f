//! A user cancels the task, or a gate discards it.

use std::sync::Arc;

use super::{MoveContext, Reason, Rejected, RunningCancel, Transition, error_text};
use crate::State;

pub(super) fn cancel(
    context: &MoveContext<'_>,
    running: RunningCancel,
    reason: Option<Arc<str>>,
) -> Result<Transition, Rejected> {
    match &context.task.state {
        state if state.kind().is_final() => Err(context.reject(Reason::Finished)),
        state if !state.kind().is_owned() => {
            Ok(context.end(State::Cancelled, reason.as_deref().map(error_text)))
        }
        state => match running {
            RunningCancel::Refuse => Err(context.reject(Reason::Running)),
            RunningCancel::Request => Ok(Transition {
                cancel_requested: true,
                ..context.to(state.clone())
            }),
        },
    }
}

pub(super) fn drop(context: &MoveContext<'_>, reason: &Arc<str>) -> Result<Transition, Rejected> {
    match context.task.state {
        State::New { .. } | State::Enqueued { .. } | State::Retriable { .. } => {
            Ok(context.end(State::Dropped, Some(error_text(reason))))
        }
        State::Waiting { .. } => Err(context.reject(Reason::Waiting)),
        State::Claimed { .. } | State::Processing { .. } => Err(context.reject(Reason::Running)),
        _ => Err(context.reject(Reason::Finished)),
    }
}
