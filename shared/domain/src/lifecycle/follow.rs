//! Another task is about to wait for this one.

use super::{MoveContext, Reason, Rejected, Transition};
use crate::{Children, EdgeKind, Family};

/// Marks the task, so that those that wait for it are notified of its end. A task that has ended, with its children, cannot be
/// marked: the process that adds a follower reads how it ended instead. This compare-and-set decides between the two.
pub(super) fn follow(context: &MoveContext<'_>, kind: EdgeKind) -> Result<Transition, Rejected> {
    let task = context.task;
    if task.kind().is_final() && !task.is_open_family() {
        return Err(context.reject(Reason::Finished));
    }
    let family = task.family().cloned().unwrap_or_default();
    let family = match kind {
        EdgeKind::Follower => Family {
            has_followers: true,
            ..family
        },
        // A family that was about to be closed is not any more.
        EdgeKind::Child => Family {
            children: Children::Open,
            ..family
        },
        // A run is marked with its token, by an event of its own.
        EdgeKind::Staged => return Err(context.reject(Reason::NotClaimed)),
    };
    Ok(Transition {
        finished_at: task.finished_at,
        owed: task.owed.clone(),
        family: Some(Box::new(family)),
        ..context.to(task.state.clone())
    })
}
