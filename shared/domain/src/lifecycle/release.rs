//! A predecessor has ended, or the consumer has checked the predecessors of a task that waits.

use super::{MoveContext, Reason, Rejected, Release, Transition, error_text};
use crate::{Family, State, Timestamp, Token};

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
    let decided = match family.refusal(release.kind, &release.from, release.end) {
        Some(why) => context.end(State::Cancelled, Some(error_text(&why))),
        None if family.is_open() => context.to(State::Waiting { check_at }),
        None => go_on(context, release.token),
    };
    if let Some(ended) = &decided.family {
        family.children = ended.children;
    }
    Ok(Transition {
        family: Some(Box::new(family)),
        ..decided
    })
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
