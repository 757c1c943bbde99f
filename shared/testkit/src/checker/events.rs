//! Counts the situations that a history contains.

use std::collections::BTreeMap;

use dueline_domain::{Reason, StateKind, Task, TaskId, Verb};

use crate::{Counters, HistoryEntry, HistoryEvent};

/// Counts the situations of a history, so that a test can require that it met them.
pub fn count_events(entries: &[HistoryEntry], counters: &Counters) {
    let mut last: BTreeMap<TaskId, &Task> = BTreeMap::new();
    for entry in entries {
        let name = match &entry.event {
            HistoryEvent::Stored { verb, task, .. } => {
                let before = last.insert(task.id, task);
                before
                    .zip(*verb)
                    .and_then(|(b, verb)| stored(verb, b, task))
            }
            HistoryEvent::Refused {
                verb,
                state,
                reason,
                ..
            } => refused(*verb, *state, *reason),
            HistoryEvent::Repeated { verb: None, .. } => Some("submit recognised"),
            HistoryEvent::Repeated { .. } => Some("own write recognised"),
            HistoryEvent::RunStarted { id, token, .. } => {
                let is_owner = last.get(id).and_then(|task| task.state.token()) == Some(*token);
                (!is_owner).then_some("user code began after its claim was lost")
            }
            HistoryEvent::Delivered { .. } => Some("record delivered"),
            HistoryEvent::Note(note) => Some(*note),
            _ => None,
        };
        if let Some(name) = name {
            counters.count(name);
        }
    }
}

fn stored(verb: Verb, before: &Task, after: &Task) -> Option<&'static str> {
    use StateKind::*;
    Some(match (verb, before.kind(), after.kind()) {
        (Verb::Trigger, New, Enqueued) => "due task enqueued",
        (Verb::Trigger, Enqueued, _) => "watchdog reclaimed enqueued",
        (Verb::Trigger, Claimed, Trashed) => "poison trashed",
        (Verb::Trigger, Claimed, _) => "watchdog reclaimed claimed",
        (Verb::Trigger, Processing, Failed) => "retries exhausted by lost runs",
        (Verb::Trigger, Processing, Retriable) => "lost run waits",
        (Verb::Trigger, Processing, _) => "watchdog reclaimed processing",
        (Verb::Trigger, Retriable, _) => "retry enqueued",
        (Verb::Reclaim, Claimed, _) => "claim of a lost worker reclaimed",
        (Verb::Reclaim, Processing, _) => "run of a lost worker reclaimed",
        (Verb::Abandon, ..) => "abandoned",
        (Verb::Claim, _, Processing) => "claim and start in one write",
        (Verb::Start, ..) => "start in its own write",
        (Verb::Heartbeat, ..) => "heartbeat",
        (Verb::Finish, Claimed, _) => "start and outcome in one write",
        (Verb::Finish, _, Failed) if after.tries > 1 => "retries exhausted",
        (Verb::Finish, _, Failed) => "failed for good",
        (Verb::Finish, _, Retriable) => "failed for now",
        (Verb::Finish, _, Succeeded) if after.tries > 1 => "succeeded after a retry",
        (Verb::Finish, _, Cancelled) => "run stopped on request",
        (Verb::Cancel, Claimed | Processing, _) => "stop requested",
        (Verb::Cancel, ..) => "cancelled before a claim",
        (Verb::Modify, ..) => "modified",
        (Verb::Replace, ..) => "replaced",
        (Verb::Redrive, ..) if before.owed.is_some() => "redriven while it owed",
        (Verb::Redrive, ..) => "redriven",
        (Verb::Settle, ..) if after.owed.is_some() => "delivery failed",
        (Verb::Settle, ..) => "delivery settled",
        _ => return None,
    })
}

fn refused(verb: Verb, state: StateKind, reason: Reason) -> Option<&'static str> {
    Some(match (verb, reason) {
        (Verb::Claim, _) if state == StateKind::Cancelled => "cancel beat claim",
        (Verb::Claim, _) => "stale message dropped",
        (Verb::Trigger, Reason::NotDue) => "trigger before its time refused",
        (Verb::Trigger, _) => "stale due row skipped",
        (Verb::Finish, _) => "zombie tried to finish",
        (Verb::Start, _) => "zombie tried to start",
        (Verb::Heartbeat, _) => "zombie tried to heartbeat",
        (Verb::Cancel, _) => "cancel refused",
        (Verb::Modify, _) => "modify refused",
        _ => return None,
    })
}
