//! A task that was cancelled because another one ended waits for that one again, and the family of a parent is open again.

use super::{MoveContext, Reason, Rejected, Revive, Transition};
use crate::{Children, Effect, Family, Owed, State, StateKind};

/// Takes back the end of the one task because of which this one was cancelled. A task that was cancelled for another reason
/// stays as it is.
pub(super) fn revive(context: &MoveContext<'_>, revive: &Revive) -> Result<Transition, Rejected> {
    let task = context.task;
    match task.kind() {
        StateKind::Cancelled => {}
        kind if kind.is_final() => return Err(context.reject(Reason::Finished)),
        _ => return Err(context.reject(Reason::NotFinished)),
    }
    let family = task
        .family()
        .filter(|_| task.was_cancelled_by(revive.kind, &revive.from));
    let mut family = family
        .cloned()
        .ok_or_else(|| context.reject(Reason::NotWaiting))?;
    for one in family.waits_for(revive.kind) {
        if one.task == revive.from {
            one.end = None;
        }
    }
    if family.children != Children::None {
        family.children = Children::Open;
    }
    let check_at = context.now.after(Family::CHECK_FIRST);
    Ok(Transition {
        last_owner: None,
        fresh: true,
        family: Some(Box::new(family)),
        ..context.to(State::Waiting { check_at })
    })
}

/// A child of the task, which has succeeded, has not ended after all. The task owes again what follows from the end of its
/// family.
pub(super) fn reopen(context: &MoveContext<'_>) -> Result<Transition, Rejected> {
    let task = context.task;
    if !task.kind().is_final() {
        return Err(context.reject(Reason::NotFinished));
    }
    let family = task
        .family()
        .filter(|_| task.kind() == StateKind::Succeeded);
    let Some(family) = family.filter(|family| family.children != Children::None) else {
        return Err(context.reject(Reason::Finished));
    };
    if family.children == Children::Open {
        return Err(context.reject(Reason::NotFinished));
    }
    let before = task.owed.as_deref();
    let before = before.iter().flat_map(|owed| owed.effects.iter().copied());
    let kept = before
        .filter(|effect| matches!(effect, Effect::Staged | Effect::Children | Effect::Deliver));
    let mut effects: Vec<_> = kept.collect();
    let check_at = match effects.is_empty() {
        true => context.now.after(Family::CHECK_FIRST),
        false => context.now,
    };
    effects.push(Effect::Close);
    Ok(Transition {
        finished_at: task.finished_at,
        owed: Owed::new(effects, check_at),
        family: Some(Box::new(Family {
            children: Children::Open,
            children_failed: 0,
            ..family.clone()
        })),
        ..context.to(task.state.clone())
    })
}
