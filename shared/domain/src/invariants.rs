//! The invariants of a task and of its transitions. Tests, the simulation and the crash tests check them.

use crate::{Effect, Family, Owed, StateKind, Task};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {detail}")]
pub struct Violation {
    /// The rule, by its id.
    pub rule: &'static str,
    /// What broke the rule.
    pub detail: String,
}

fn broken(rule: &'static str, detail: impl Into<String>) -> Result<(), Violation> {
    let detail = detail.into();
    Err(Violation { rule, detail })
}

/// Checks the invariants of one task.
pub fn check_task(task: &Task) -> Result<(), Violation> {
    let kind = task.kind();
    let must_trigger = !kind.is_final() || task.owed.is_some();
    if task.trigger_at().is_some() != must_trigger {
        return broken(
            "TL-1 every task that is unfinished or owes an effect has a trigger time",
            kind.name(),
        );
    }
    let owes_nothing = task
        .owed
        .as_ref()
        .is_some_and(|owed| owed.effects.is_empty());
    if owes_nothing || (task.owed.is_some() && !kind.is_final()) {
        return broken("TL-9 only a finished task owes an effect", kind.name());
    }
    if task.finished_at.is_some() != kind.is_final() {
        return broken(
            "TL-2 only final tasks have a time of their end",
            kind.name(),
        );
    }
    if task.changed_at < task.created_at {
        return broken("TL-3 no change precedes the submit", kind.name());
    }
    if kind == StateKind::Succeeded && (task.tries == 0 || task.started_at.is_none()) {
        return broken("TL-4 a succeeded task has run", kind.name());
    }
    if task.last_owner.is_some() && !kind.is_final() {
        return broken("TL-11 only a finished task has a last owner", kind.name());
    }
    let is_open = task.family().is_some_and(Family::is_open);
    if !kind.is_final() && is_open != (kind == StateKind::Waiting) {
        let detail = kind.name();
        return broken(
            "TL-12 a task waits as long as a predecessor is open",
            detail,
        );
    }
    let closes = |owed: &Owed| owed.effects.contains(&Effect::Close);
    if task.is_open_family() != task.owed.as_deref().is_some_and(closes) {
        let detail = kind.name();
        return broken("TL-13 a family that is not closed owes that", detail);
    }
    let runs = task.history.as_ref().map_or(&[][..], |past| &past.runs);
    let attempts = runs.iter().map(|run| run.attempt);
    if !attempts.is_sorted_by(|one, next| one < next) {
        let detail = kind.name();
        return broken("TL-10 each run of a task has a number of its own", detail);
    }
    Ok(())
}

/// Whether a finished task has changed only in what it owes and in its family.
fn settles(before: &Task, after: &Task) -> bool {
    let mut options = after.options.clone();
    if let Some(options) = &mut options {
        let before = before.options.as_ref();
        options.family = before.and_then(|options| options.family.clone());
    }
    let unchanged = Task {
        options,
        changed_at: before.changed_at,
        write: before.write,
        owed: before.owed.clone(),
        ..after.clone()
    };
    let owes = before.owed.is_some() || after.owed.is_some();
    owes && before.kind().is_final() && unchanged == *before
}

/// Checks that `after` may follow `before`.
pub fn check_transition(before: &Task, after: &Task) -> Result<(), Violation> {
    let (from, to) = (before.kind(), after.kind());
    if !from.may_become(to) && !settles(before, after) {
        return broken(
            "TL-5 only legal moves happen",
            format!("{from} became {to}"),
        );
    }
    if after.changed_at < before.changed_at {
        return broken("TL-6 the time of change never moves back", to.name());
    }
    if (before.id, &before.job, before.created_at) != (after.id, &after.job, after.created_at) {
        return broken("TL-7 id, job and time of submit never change", to.name());
    }
    let is_enqueued = to == StateKind::Enqueued && from != StateKind::Enqueued;
    if is_enqueued && before.state.token() == after.state.token() {
        return broken("TL-8 each enqueue has a new token", to.name());
    }
    check_task(after)
}
