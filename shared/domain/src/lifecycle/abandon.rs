//! The owner gives the task back.

use super::{Rejected, Step, Transition};
use crate::{RunEnd, State, Token};

pub(super) fn abandon(step: &Step<'_>, token: Token, next: Token) -> Result<Transition, Rejected> {
    let task = step.task;
    let run = match &task.state {
        State::Claimed { token: held, .. } if *held == token => None,
        State::Processing { token: held, .. } if *held == token => {
            let started_at = task.started_at.unwrap_or(task.changed_at);
            Some(step.run(started_at, task.tries, RunEnd::Abandoned, "given back"))
        }
        _ => return Err(step.reject_worker(token)),
    };
    // Giving back is a choice, not a failure: the try that a run had used is returned.
    let tries = task.tries.saturating_sub(u32::from(run.is_some()));
    let transition = if task.cancel_requested {
        step.end(State::Cancelled, None)
    } else {
        step.hand_on(next)
    };
    Ok(Transition {
        tries,
        run,
        ..transition
    })
}
