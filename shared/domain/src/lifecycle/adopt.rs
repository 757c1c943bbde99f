//! A later run of the task that had submitted this one submits it again.

use super::{Adopt, MoveContext, Reason, Rejected, Transition};
use crate::{Children, Family, State, StateKind, TaskEnd};

/// Stages the task for the later run. It waits as if it were new: ends that it was notified of do not count any more. A task
/// that a user has cancelled stays cancelled.
pub(super) fn adopt(context: &MoveContext<'_>, again: &Adopt) -> Result<Transition, Rejected> {
    let task = context.task;
    let not_waiting = || context.reject(Reason::NotWaiting);
    let family = task.family().ok_or_else(not_waiting)?;
    let run = family.from_run.as_ref().ok_or_else(not_waiting)?;
    let next = again.family.from_run.as_ref().ok_or_else(not_waiting)?;
    if run.end == Some(TaskEnd::Succeeded) || run.task != next.task || next.end.is_some() {
        return Err(not_waiting());
    }
    if run.token != again.seen || next.token == again.seen {
        return Err(context.reject(Reason::Moved));
    }
    match task.kind() {
        StateKind::Waiting => {}
        StateKind::Cancelled if family.is_refused() => {}
        kind if kind.is_final() => return Err(context.reject(Reason::Finished)),
        _ => return Err(not_waiting()),
    }
    let check_at = context.now.after(Family::CHECK_FIRST);
    Ok(Transition {
        last_owner: None,
        fresh: true,
        family: Some(Box::new(Family {
            has_followers: family.has_followers,
            children: match family.children {
                Children::None => Children::None,
                _ => Children::Open,
            },
            ..again.family.clone()
        })),
        modified: Some(Box::new(again.change.clone())),
        ..context.to(State::Waiting { check_at })
    })
}
