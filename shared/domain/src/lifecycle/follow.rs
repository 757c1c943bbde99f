//! Another task is about to wait for this one.

use super::{MoveContext, Reason, Rejected, Transition};
use crate::Family;

/// Marks the task, so that its end is told to those that wait for it. A task that has ended cannot be marked: whoever
/// adds a follower to it reads how it ended instead. This compare-and-set decides between the two.
pub(super) fn follow(context: &MoveContext<'_>) -> Result<Transition, Rejected> {
    let task = context.task;
    if task.kind().is_final() {
        return Err(context.reject(Reason::Finished));
    }
    let family = Family {
        has_followers: true,
        ..task.family().cloned().unwrap_or_default()
    };
    Ok(Transition {
        family: Some(Box::new(family)),
        ..context.to(task.state.clone())
    })
}
