//! The run has ended.

use std::sync::Arc;

use super::{MoveContext, Outcome, Reason, Rejected, Transition, error_text, start};
use crate::{Jitter, RunEnd, State, Timestamp, Token};

pub(super) fn finish(
    context: &MoveContext<'_>,
    token: Token,
    started_at: Option<Timestamp>,
    outcome: &Outcome,
    jitter: Jitter,
) -> Result<Transition, Rejected> {
    let task = context.task;
    // An outcome that arrives before its start carries the start time; both become one write.
    let begun = match (&task.state, started_at) {
        (State::Processing { token: current, .. }, _) if *current == token => {
            context.to(task.state.clone())
        }
        (
            State::Claimed {
                token: current,
                lease,
            },
            Some(at),
        ) if *current == token => {
            let at = at.clamp(lease.claimed_at, context.now);
            start::begin(context, token, lease.clone(), at)
        }
        _ => return Err(context.reject_worker(token)),
    };
    let (tries, started_at) = (begun.tries, begun.started_at.unwrap_or(context.now));
    let run = |end, info: &Arc<str>| Some(context.run_record(started_at, end, info));
    let decided = match outcome {
        Outcome::Success { result } => Transition {
            result: result.clone(),
            ..context.end(State::Succeeded, None)
        },
        Outcome::Fatal { error } => Transition {
            run: run(RunEnd::Fatal, error),
            ..context.end(State::Failed, Some(error_text(error)))
        },
        Outcome::Cancelled if !task.cancel_requested => {
            return Err(context.reject(Reason::CancelNotRequested));
        }
        Outcome::Cancelled => {
            let why = Arc::from("stopped on request");
            Transition {
                run: run(RunEnd::Cancelled, &why),
                ..context.end(State::Cancelled, Some(why))
            }
        }
        Outcome::Retriable {
            class,
            delay,
            error,
        } => {
            let stored = Some(error_text(error));
            let next = if task.cancel_requested {
                context.end(State::Cancelled, stored)
            } else if !context.policy.retry.allows_after(tries) {
                context.end(State::Failed, stored)
            } else {
                let failures = tries.saturating_sub(1);
                let wait = delay.or_else(|| context.policy.retry.wait(*class, failures, jitter));
                let retry_at = context.now.after(wait.unwrap_or_default());
                Transition {
                    error: stored,
                    ..context.to(State::Retriable { retry_at })
                }
            };
            Transition {
                run: run(RunEnd::Retriable, error),
                ..next
            }
        }
    };
    Ok(Transition {
        tries,
        started_at: Some(started_at),
        ..decided
    })
}
