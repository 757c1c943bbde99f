//! A predecessor has ended, or the consumer has checked the predecessors of a task that waits.

use super::{MoveContext, Reason, Rejected, Release, RunEnded, Transition, error_text};
use crate::{Family, State, TaskEnd, Timestamp, Token};

pub(super) fn release(
    context: &MoveContext<'_>,
    release: &Release,
) -> Result<Transition, Rejected> {
    let not_waiting = || context.reject(Reason::NotWaiting);
    let State::Waiting { check_at } = context.task.state else {
        return Err(not_waiting());
    };
    let mut family = context.task.family().cloned().ok_or_else(not_waiting)?;
    // A set, each element of which is removed once: the same end may be recorded any number of times.
    let mut open = family.waits_for(release.kind).iter_mut();
    let waited_for = open.find(|one| one.end.is_none() && one.task == release.from);
    waited_for.ok_or_else(not_waiting)?.end = Some(release.end);
    let refusal = family.refusal(release.kind, &release.from, release.end);
    Ok(decide(context, family, check_at, refusal, release.token))
}

/// The run from inside which the task was submitted has ended.
pub(super) fn run_ended(
    context: &MoveContext<'_>,
    ended: RunEnded,
) -> Result<Transition, Rejected> {
    let not_waiting = || context.reject(Reason::NotWaiting);
    let State::Waiting { check_at } = context.task.state else {
        return Err(not_waiting());
    };
    let mut family = context.task.family().cloned().ok_or_else(not_waiting)?;
    let run = family.from_run.as_mut();
    let run = run.filter(|run| run.end.is_none() && run.token == ended.run);
    let run = run.ok_or_else(not_waiting)?;
    let (end, refusal) = match ended.succeeded {
        true => (TaskEnd::Succeeded, None),
        false => {
            let why = format!(
                "discarded: the run of {} that submitted it did not succeed",
                run.task
            );
            (TaskEnd::Discarded, Some(why))
        }
    };
    run.end = Some(end);
    Ok(decide(context, family, check_at, refusal, ended.token))
}

/// The task that knows one end more: it is cancelled, waits on, or goes on.
fn decide(
    context: &MoveContext<'_>,
    mut family: Family,
    check_at: Timestamp,
    refusal: Option<String>,
    token: Option<Token>,
) -> Transition {
    let decided = match refusal {
        Some(why) => context.end(State::Cancelled, Some(error_text(&why))),
        None if family.is_open() => context.to(State::Waiting { check_at }),
        None => go_on(context, token),
    };
    if let Some(ended) = &decided.family {
        family.children = ended.children;
    }
    Transition {
        family: Some(Box::new(family)),
        ..decided
    }
}

/// The consumer has checked the predecessors: the task waits on.
pub(super) fn wait_on(context: &MoveContext<'_>, token: Token) -> Transition {
    let task = context.task;
    if !task.family().is_some_and(Family::is_open) {
        return go_on(context, Some(token));
    }
    let check_at: Timestamp = Family::next_check(task.created_at, context.now);
    context.to(State::Waiting { check_at })
}

/// The task that waits for no other one any more: it is enqueued, or waits for its due time.
fn go_on(context: &MoveContext<'_>, token: Option<Token>) -> Transition {
    let due_at = context.task.run_at;
    match token.filter(|_| due_at <= context.now) {
        Some(token) => context.enqueue(token),
        None => context.to(State::New { due_at }),
    }
}
