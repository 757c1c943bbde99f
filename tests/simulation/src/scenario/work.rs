//! The tasks of a scenario, and the changes that users make to them.

use std::time::Duration;

use dueline_domain::TriggerOn;

use super::{ScenarioRng, WorldMode};
use crate::TaskScript;

/// A task that a client submits.
#[derive(Clone, Debug)]
pub struct PlannedSubmit {
    /// When the client submits it.
    pub at: Duration,
    /// Index of its job.
    pub job: usize,
    /// What its handler does.
    pub script: TaskScript,
    /// Time from the submit until the task is due; `None` when it is due at once.
    pub delay: Option<Duration>,
    /// Its priority.
    pub priority: i64,
    /// Whether the client dies after the store's answer, before it sends the message.
    pub client_dies: bool,
    /// What it waits for.
    pub family: PlannedFamily,
}

/// What a task waits for: tasks with these numbers, which are submitted before.
#[derive(Clone, Debug, Default)]
pub struct PlannedFamily {
    /// Its predecessors.
    pub after: Vec<usize>,
    /// Its parent.
    pub parent: Option<usize>,
    /// Which ends of its predecessors let it go on.
    pub trigger_on: TriggerOn,
}

/// A change that a user makes to the task with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAction {
    /// Cancels the task unless it is running.
    Cancel(usize),
    /// Cancels the task, running or not.
    Stop(usize),
    /// Makes the task due this long from now.
    Postpone(usize, Duration),
    /// Raises the priority of the task.
    RaisePriority(usize),
    /// Redrives the task if it failed or was trashed.
    Redrive(usize),
}

pub(super) fn submits(
    rng: &ScenarioRng,
    mode: WorldMode,
    jobs: usize,
    heal_at: Duration,
) -> Vec<PlannedSubmit> {
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1) * 2 / 3;
    let submit = |_| PlannedSubmit {
        at: rng.ms(0, window),
        job: rng.index(jobs),
        script: script(rng, mode),
        delay: rng.chance(40).then(|| rng.ms(0, 10_000)),
        priority: rng.range(0, 201).cast_signed() - 100,
        client_dies: rng.chance(10),
        family: PlannedFamily::default(),
    };
    let count = match mode.is_fleet() {
        true => rng.range(20, 31),
        false => rng.range(10, 19),
    };
    let mut submits: Vec<_> = (0..count).map(submit).collect();
    submits.sort_by_key(|submit| submit.at);
    submits
}

fn script(rng: &ScenarioRng, mode: WorldMode) -> TaskScript {
    match rng.range(0, 100) {
        0..45 => TaskScript::Succeed(rng.range(0, 1_500)),
        45..60 => TaskScript::Succeed(rng.range(3_000, 14_000)),
        60..78 => TaskScript::Fail(u32::try_from(rng.range(1, 4)).unwrap_or(1)),
        78..86 => TaskScript::Fatal,
        86..94 => TaskScript::Panic,
        // Where crashed hosts are not replaced, a poison task would kill all of them.
        _ if matches!(mode, WorldMode::Liveness | WorldMode::FleetLiveness) => {
            TaskScript::Succeed(10)
        }
        _ => TaskScript::Poison,
    }
}

/// Lets tasks wait for earlier ones, and runs stage others.
pub(super) fn plan_families(rng: &ScenarioRng, submits: &mut [PlannedSubmit]) {
    for (number, submit) in submits.iter_mut().enumerate() {
        if rng.chance(25) {
            submit.script = TaskScript::Stage(u32::try_from(rng.range(0, 3)).unwrap_or(0));
        }
        let family = &mut submit.family;
        if number == 0 {
            continue;
        }
        match rng.range(0, 10) {
            0..6 => {
                let after = (0..rng.range(1, 4)).map(|_| rng.index(number));
                family.after = after.collect();
                family.after.sort_unstable();
                family.after.dedup();
                family.trigger_on = TriggerOn::ALL[rng.index(TriggerOn::ALL.len())];
            }
            6..8 => family.parent = Some(rng.index(number)),
            _ => {}
        }
    }
}

pub(super) fn user_actions(
    rng: &ScenarioRng,
    mode: WorldMode,
    tasks: usize,
    heal_at: Duration,
) -> Vec<(Duration, UserAction)> {
    if matches!(mode, WorldMode::Liveness | WorldMode::FleetLiveness) {
        return Vec::new();
    }
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1);
    let user_action = |_| {
        let task = rng.index(tasks);
        let action = match rng.range(0, 8) {
            0 => UserAction::Cancel(task),
            1..4 => UserAction::Stop(task),
            4 => UserAction::Postpone(task, rng.ms(0, 8_000)),
            5 => UserAction::RaisePriority(task),
            // What has gone on because of an end stays as it is, so that a later end proves nothing.
            _ if mode.has_families() => UserAction::RaisePriority(task),
            _ => UserAction::Redrive(task),
        };
        (rng.ms(0, window), action)
    };
    let mut user_actions: Vec<_> = (0..rng.range(0, 10)).map(user_action).collect();
    user_actions.sort_by_key(|(at, _)| *at);
    user_actions
}
