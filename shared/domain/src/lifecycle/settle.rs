//! An effect that a finished task owes was done, or has failed.

use std::sync::Arc;

use super::{MoveContext, Reason, Rejected, Settle, Transition};
use crate::{Effect, Family, Owed, truncate_text};

pub(super) fn settle(context: &MoveContext<'_>, settle: &Settle) -> Result<Transition, Rejected> {
    let task = context.task;
    if !task.kind().is_final() {
        return Err(context.reject(Reason::NotFinished));
    }
    let owed = task.owed.as_deref();
    let owed = owed.filter(|owed| owed.effects.contains(&settle.effect));
    let Some(owed) = owed.filter(|_| task.write == settle.seen) else {
        return Err(context.reject(Reason::Moved));
    };
    let next_check = || {
        let since = task.finished_at.unwrap_or(task.changed_at);
        Family::next_check(since, context.now)
    };
    let owed = match &settle.failed {
        // Only the event that closes the family ends this.
        None if settle.effect == Effect::Close => return Err(context.reject(Reason::Moved)),
        // Some children have not ended, which is no failure.
        Some(_) if settle.effect == Effect::Close => Some(Box::new(Owed {
            trigger_at: next_check(),
            ..owed.clone()
        })),
        Some((error, jitter)) => Some(Box::new(Owed {
            trigger_at: context.now.after(Owed::backoff(owed.failures, *jitter)),
            failures: owed.failures.saturating_add(1),
            error: Some(Arc::from(truncate_text(error, Owed::ERROR_BYTES_MAX))),
            ..owed.clone()
        })),
        None => {
            let mut left = owed.clone();
            left.effects.retain(|effect| *effect != settle.effect);
            if left.effects == [Effect::Close] {
                // Each child that ends looks after the family. This is the check of what was lost.
                left.trigger_at = next_check();
            }
            (!left.effects.is_empty()).then(|| Box::new(left))
        }
    };
    Ok(Transition {
        finished_at: task.finished_at,
        owed,
        ..context.to(task.state.clone())
    })
}
