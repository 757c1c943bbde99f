//! What a history shows to have happened at all.

use std::collections::BTreeMap;

use dueline_domain::{Reason, StateKind, Task, TaskId, Verb};

use crate::{Counters, Entry, What};

/// Counts in `counters` the interesting things that happened in a history.
pub fn sometimes(entries: &[Entry], counters: &Counters) {
    let mut last: BTreeMap<TaskId, &Task> = BTreeMap::new();
    for entry in entries {
        let name = match &entry.what {
            What::Stored { verb, task, .. } => {
                let before = last.insert(task.id, task);
                before.zip(*verb).and_then(|(b, verb)| step(verb, b, task))
            }
            What::Refused {
                verb,
                state,
                reason,
                ..
            } => refused(*verb, *state, *reason),
            What::Repeated { verb: None, .. } => Some("submit recognised"),
            What::Repeated { .. } => Some("own write recognised"),
            What::RunStarted { id, token, .. } => {
                let holds = last.get(id).and_then(|task| task.state.token()) == Some(*token);
                (!holds).then_some("user code began after its claim was lost")
            }
            What::Note(note) => Some(*note),
            _ => None,
        };
        if let Some(name) = name {
            counters.count(name);
        }
    }
}

fn step(verb: Verb, before: &Task, after: &Task) -> Option<&'static str> {
    use StateKind::*;
    Some(match (verb, before.kind(), after.kind()) {
        (Verb::Trigger, New, Enqueued) => "due task enqueued",
        (Verb::Trigger, Enqueued, _) => "watchdog took back enqueued",
        (Verb::Trigger, Claimed, Trashed) => "poison trashed",
        (Verb::Trigger, Claimed, _) => "watchdog took back claimed",
        (Verb::Trigger, Processing, Failed) => "retries exhausted by lost runs",
        (Verb::Trigger, Processing, Retriable) => "lost run waits",
        (Verb::Trigger, Processing, _) => "watchdog took back processing",
        (Verb::Trigger, Retriable, _) => "retry enqueued",
        (Verb::OwnerLost, Claimed, _) => "claim of a leaver taken back",
        (Verb::OwnerLost, Processing, _) => "run of a leaver taken back",
        (Verb::Abandon, ..) => "given back",
        (Verb::Claim, _, Processing) => "claim and start in one write",
        (Verb::Start, ..) => "start in its own write",
        (Verb::Heartbeat, ..) => "heartbeat",
        (Verb::Finish, Claimed, _) => "start and outcome in one write",
        (Verb::Finish, _, Failed) if after.tries > 1 => "retries exhausted",
        (Verb::Finish, _, Failed) => "failed for good",
        (Verb::Finish, _, Retriable) => "failed for now",
        (Verb::Finish, _, Succeeded) if after.tries > 1 => "succeeded after a retry",
        (Verb::Finish, _, Cancelled) => "run stopped on request",
        (Verb::Cancel, Claimed | Processing, _) => "stop asked for",
        (Verb::Cancel, ..) => "cancelled before a claim",
        (Verb::Modify, ..) => "modified",
        (Verb::Redrive, ..) => "redriven",
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
