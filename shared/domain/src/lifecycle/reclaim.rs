//! A lease ends because its worker is gone or its time has passed.

use super::{MoveContext, Reason, Reclaim, Rejected, Transition};
use crate::{Jitter, RetryClass, RunEnd, State, Token};

pub(super) fn reclaim(context: &MoveContext<'_>, lost: &Reclaim) -> Result<Transition, Rejected> {
    match &context.task.state {
        State::Claimed { token, .. } if *token == lost.token => Ok(claim_lost(context, lost.next)),
        State::Processing { token, .. } if *token == lost.token => Ok(run_lost(
            context,
            lost.next,
            lost.jitter,
            "the worker was lost",
        )),
        state if state.kind().is_final() => Err(context.reject(Reason::Finished)),
        _ => Err(context.reject(Reason::Moved)),
    }
}

/// Ends a claim whose run has not begun. No try is used, but a task that loses too many claims is poison.
pub(super) fn claim_lost(context: &MoveContext<'_>, next: Token) -> Transition {
    if context.task.cancel_requested {
        return context.end(State::Cancelled, None);
    }
    let losses = context.task.losses.saturating_add(1);
    let transition = if losses > context.policy.losses_max {
        let error = format!("poison: lost {losses} claims before a run began");
        context.end(State::Trashed, Some(error.into()))
    } else {
        context.enqueue(next)
    };
    Transition {
        losses,
        ..transition
    }
}

/// Ends a run that has no outcome. Its try stays used.
pub(super) fn run_lost(
    context: &MoveContext<'_>,
    next: Token,
    jitter: Jitter,
    why: &str,
) -> Transition {
    let task = context.task;
    let started_at = task.started_at.unwrap_or(task.changed_at);
    let run = context.run_record(started_at, RunEnd::Lost, why);
    let error = Some(run.info.clone());
    let failures = task.tries.saturating_sub(1);
    let transition = if task.cancel_requested {
        context.end(State::Cancelled, error)
    } else if !context.policy.retry.allows_after(task.tries) {
        context.end(State::Failed, error)
    } else {
        let class = RetryClass::WorkerLost;
        let next = match context.policy.retry.wait(class, failures, jitter) {
            None => context.enqueue(next),
            Some(wait) => context.to(State::Retriable {
                retry_at: context.now.after(wait),
            }),
        };
        Transition { error, ..next }
    };
    Transition {
        run: Some(run),
        ..transition
    }
}
