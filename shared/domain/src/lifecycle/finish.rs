//! The run is over.

use std::sync::Arc;

use super::{Outcome, Reason, Rejected, Step, Transition, cut, start};
use crate::{Jitter, RunEnd, State, Timestamp, Token};

pub(super) fn finish(
    step: &Step<'_>,
    token: Token,
    started_at: Option<Timestamp>,
    outcome: &Outcome,
    jitter: Jitter,
) -> Result<Transition, Rejected> {
    let task = step.task;
    // An outcome that overtook its own start carries the start with it; both are one write.
    let begun = match (&task.state, started_at) {
        (State::Processing { token: held, .. }, _) if *held == token => step.to(task.state.clone()),
        (State::Claimed { token: held, lease }, Some(at)) if *held == token => {
            let at = at.clamp(lease.claimed_at, step.now);
            start::begin(step, token, lease.clone(), at)
        }
        _ => return Err(step.reject_worker(token)),
    };
    let (tries, started_at) = (begun.tries, begun.started_at.unwrap_or(step.now));
    let run = |end, info: &Arc<str>| Some(step.run(started_at, tries, end, info));
    let decided = match outcome {
        Outcome::Success { result } => Transition {
            result: result.clone(),
            ..step.end(State::Succeeded, None)
        },
        Outcome::Fatal { error } => Transition {
            run: run(RunEnd::Fatal, error),
            ..step.end(State::Failed, Some(cut(error)))
        },
        Outcome::Cancelled if !task.cancel_requested => {
            return Err(step.reject(Reason::CancelNotRequested));
        }
        Outcome::Cancelled => {
            let why = Arc::from("stopped on request");
            Transition {
                run: run(RunEnd::Cancelled, &why),
                ..step.end(State::Cancelled, Some(why))
            }
        }
        Outcome::Retriable {
            class,
            delay,
            error,
        } => {
            let error_text = Some(cut(error));
            let next = if task.cancel_requested {
                step.end(State::Cancelled, error_text)
            } else if !step.policy.retry.allows_after(tries) {
                step.end(State::Failed, error_text)
            } else {
                let failures = tries.saturating_sub(1);
                let wait = delay.or_else(|| step.policy.retry.wait(*class, failures, jitter));
                let retry_at = step.now.after(wait.unwrap_or_default());
                Transition {
                    error: error_text,
                    ..step.to(State::Retriable { retry_at })
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
