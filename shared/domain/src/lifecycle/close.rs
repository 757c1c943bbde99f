//! All children of a task that has succeeded seem to have ended.

use super::{Close, MoveContext, Reason, Rejected, Transition};
use crate::{Children, Effect, Family, Owed, StateKind};

/// The first step marks the family as closing. A child that is added later removes the mark. The second step closes it, and
/// the task owes that to its followers and to its own parent.
pub(super) fn close(context: &MoveContext<'_>, step: Close) -> Result<Transition, Rejected> {
    let task = context.task;
    if !task.kind().is_final() {
        return Err(context.reject(Reason::NotFinished));
    }
    let family = task
        .family()
        .filter(|_| task.kind() == StateKind::Succeeded);
    let Some(family) = family.filter(|family| family.children.are_open()) else {
        return Err(context.reject(Reason::Finished));
    };
    let (children, failed) = match (family.children, step.failed) {
        _ if task.write != step.seen => return Err(context.reject(Reason::Moved)),
        (Children::Open, None) => (Children::Closing, 0),
        (Children::Closing, Some(failed)) => (Children::Closed, failed),
        _ => return Err(context.reject(Reason::Moved)),
    };
    let mut owed = task.owed.clone();
    if children == Children::Closed {
        let before = owed.map_or_else(Vec::new, |owed| owed.effects);
        let new = [
            (Effect::Release, family.has_followers),
            (Effect::Leave, family.parent.is_some()),
        ];
        let new = new.into_iter().filter(|(_, owes)| *owes);
        let mut effects: Vec<_> = new.map(|(effect, _)| effect).collect();
        effects.extend(before.into_iter().filter(|one| *one != Effect::Close));
        owed = Owed::new(effects, context.now);
    }
    Ok(Transition {
        finished_at: task.finished_at,
        owed,
        family: Some(Box::new(Family {
            children,
            children_failed: failed,
            ..family.clone()
        })),
        ..context.to(task.state.clone())
    })
}
