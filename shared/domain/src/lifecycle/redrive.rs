//! An operator puts a dead task back.

use super::{Reason, Rejected, Step, Transition};
use crate::State;

pub(super) fn redrive(step: &Step<'_>) -> Result<Transition, Rejected> {
    match step.task.state {
        State::Failed | State::Trashed => Ok(Transition {
            tries: 0,
            losses: 0,
            started_at: None,
            fresh: true,
            ..step.to(State::New { due_at: step.now })
        }),
        State::Succeeded | State::Cancelled | State::Dropped => Err(step.reject(Reason::Finished)),
        _ => Err(step.reject(Reason::NotFinished)),
    }
}
