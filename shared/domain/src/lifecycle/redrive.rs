//! An operator puts a failed or trashed task back. What it owes is cleared: it owes again when it ends again, and a
//! sink that is down must not keep an operator from the redrive.

use super::{MoveContext, Reason, Rejected, Transition};
use crate::{Children, Family, State};

pub(super) fn redrive(context: &MoveContext<'_>) -> Result<Transition, Rejected> {
    // Children may be added again, and the followers are notified again.
    let family = context.task.family();
    let family = family.filter(|family| family.children == Children::Closed);
    let family = family.map(|family| {
        Box::new(Family {
            children: Children::Open,
            ..family.clone()
        })
    });
    match context.task.state {
        State::Failed | State::Trashed => Ok(Transition {
            tries: 0,
            losses: 0,
            started_at: None,
            last_owner: None,
            fresh: true,
            family,
            ..context.to(State::New {
                due_at: context.now,
            })
        }),
        State::Succeeded | State::Cancelled | State::Dropped => {
            Err(context.reject(Reason::Finished))
        }
        _ => Err(context.reject(Reason::NotFinished)),
    }
}
