//! The worker is gone.

use super::{OwnerLost, Reason, Rejected, Step, Transition};
use crate::{Jitter, RetryClass, RunEnd, State, Token};

pub(super) fn owner_lost(step: &Step<'_>, lost: &OwnerLost) -> Result<Transition, Rejected> {
    match &step.task.state {
        State::Claimed { token, .. } if *token == lost.token => Ok(claim_lost(step, lost.next)),
        State::Processing { token, .. } if *token == lost.token => Ok(run_lost(
            step,
            lost.next,
            lost.jitter,
            "the worker was lost",
        )),
        state if state.kind().is_final() => Err(step.reject(Reason::Finished)),
        _ => Err(step.reject(Reason::Moved)),
    }
}

/// A claim ended before a run began: no try is used, but a task that does this again and again is poison.
pub(super) fn claim_lost(step: &Step<'_>, next: Token) -> Transition {
    if step.task.cancel_requested {
        return step.end(State::Cancelled, None);
    }
    let losses = step.task.losses.saturating_add(1);
    let transition = if losses > step.policy.losses_max {
        let error = format!("poison: lost {losses} claims before a run began");
        step.end(State::Trashed, Some(error.into()))
    } else {
        step.hand_on(next)
    };
    Transition {
        losses,
        ..transition
    }
}

/// A run ended without an outcome: its try stays used.
pub(super) fn run_lost(step: &Step<'_>, next: Token, jitter: Jitter, why: &str) -> Transition {
    let task = step.task;
    let started_at = task.started_at.unwrap_or(task.changed_at);
    let run = step.run(started_at, task.tries, RunEnd::Lost, why);
    let error = Some(run.info.clone());
    let failures = task.tries.saturating_sub(1);
    let transition = if task.cancel_requested {
        step.end(State::Cancelled, error)
    } else if !step.policy.retry.allows_after(task.tries) {
        step.end(State::Failed, error)
    } else {
        let class = RetryClass::WorkerLost;
        let next = match step.policy.retry.wait(class, failures, jitter) {
            None => step.hand_on(next),
            Some(wait) => step.to(State::Retriable {
                retry_at: step.now.after(wait),
            }),
        };
        Transition { error, ..next }
    };
    Transition {
        run: Some(run),
        ..transition
    }
}
