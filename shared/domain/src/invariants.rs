//! What must hold for every task at every moment, and for every step; checked in tests, simulation and crash runs.

use crate::{StateKind, Task};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {detail}")]
pub struct Violation {
    /// The rule, by its id.
    pub rule: &'static str,
    /// What was seen.
    pub detail: String,
}

fn broken(rule: &'static str, detail: impl Into<String>) -> Result<(), Violation> {
    let detail = detail.into();
    Err(Violation { rule, detail })
}

/// Checks one task by itself.
pub fn check_task(task: &Task) -> Result<(), Violation> {
    let kind = task.kind();
    let must_trigger = !kind.is_final() && kind != StateKind::Waiting;
    if task.state.trigger_at().is_some() != must_trigger {
        return broken("TL-1 every unfinished task has a trigger time", kind.name());
    }
    if task.finished_at.is_some() != kind.is_final() {
        return broken("TL-2 exactly final tasks have an end", kind.name());
    }
    if task.changed_at < task.created_at {
        return broken("TL-3 no change precedes the submit", kind.name());
    }
    if kind == StateKind::Succeeded && (task.tries == 0 || task.started_at.is_none()) {
        return broken("TL-4 success means that it ran", kind.name());
    }
    Ok(())
}

/// Checks that `after` may follow `before`.
pub fn check_step(before: &Task, after: &Task) -> Result<(), Violation> {
    let (from, to) = (before.kind(), after.kind());
    if !from.may_become(to) {
        return broken(
            "TL-5 only legal moves happen",
            format!("{from} became {to}"),
        );
    }
    if after.changed_at < before.changed_at {
        return broken("TL-6 time of change never goes back", to.name());
    }
    if (before.id, &before.job, before.created_at) != (after.id, &after.job, after.created_at) {
        return broken("TL-7 id, job and time of submit never change", to.name());
    }
    let handed_on = to == StateKind::Enqueued && from != StateKind::Enqueued;
    if handed_on && before.state.token() == after.state.token() {
        return broken("TL-8 each hand-on has a new token", to.name());
    }
    check_task(after)
}
