//! A user stops the task, or a gate discards it.

use std::sync::Arc;

use super::{Reason, Rejected, RunningCancel, Step, Transition, cut};
use crate::State;

pub(super) fn cancel(
    step: &Step<'_>,
    running: RunningCancel,
    reason: Option<Arc<str>>,
) -> Result<Transition, Rejected> {
    match &step.task.state {
        state if state.kind().is_final() => Err(step.reject(Reason::Finished)),
        state if !state.kind().is_owned() => {
            Ok(step.end(State::Cancelled, reason.as_deref().map(cut)))
        }
        state => match running {
            RunningCancel::Refuse => Err(step.reject(Reason::Running)),
            RunningCancel::Request => Ok(Transition {
                cancel_requested: true,
                ..step.to(state.clone())
            }),
        },
    }
}

pub(super) fn drop(step: &Step<'_>, reason: &Arc<str>) -> Result<Transition, Rejected> {
    match step.task.state {
        State::New { .. } | State::Enqueued { .. } | State::Retriable { .. } => {
            Ok(step.end(State::Dropped, Some(cut(reason))))
        }
        State::Waiting => Err(step.reject(Reason::Waiting)),
        State::Claimed { .. } | State::Processing { .. } => Err(step.reject(Reason::Running)),
        _ => Err(step.reject(Reason::Finished)),
    }
}
