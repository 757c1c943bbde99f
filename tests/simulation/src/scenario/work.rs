//! Tasks, and what users do to them.

use std::time::Duration;

use super::{Dice, Mode};
use crate::Script;

/// A submit to come.
#[derive(Clone, Debug)]
pub struct Submit {
    /// When the client sends it.
    pub at: Duration,
    /// To which job.
    pub job: usize,
    /// What the task does.
    pub script: Script,
    /// How long after the submit it is due; `None` at once.
    pub delay: Option<Duration>,
    /// Its priority.
    pub priority: i64,
    /// Whether the client dies between the store's answer and the message.
    pub client_dies: bool,
}

/// What a user does to the task with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Cancels it if it does not run.
    Cancel(usize),
    /// Cancels it, running or not.
    Stop(usize),
    /// Moves it to this long from now.
    Postpone(usize, Duration),
    /// Gives it another priority.
    Hurry(usize),
    /// Puts it back if it is dead.
    Redrive(usize),
}

pub(super) fn submits(dice: &Dice, mode: Mode, jobs: usize, heal_at: Duration) -> Vec<Submit> {
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1) * 2 / 3;
    let submit = |_| Submit {
        at: dice.ms(0, window),
        job: dice.index(jobs),
        script: script(dice, mode),
        delay: dice.chance(40).then(|| dice.ms(0, 10_000)),
        priority: dice.range(0, 201).cast_signed() - 100,
        client_dies: dice.chance(10),
    };
    let count = match mode.is_fleet() {
        true => dice.range(20, 31),
        false => dice.range(10, 19),
    };
    let mut submits: Vec<_> = (0..count).map(submit).collect();
    submits.sort_by_key(|submit| submit.at);
    submits
}

fn script(dice: &Dice, mode: Mode) -> Script {
    match dice.range(0, 100) {
        0..45 => Script::Succeed(dice.range(0, 1_500)),
        45..60 => Script::Succeed(dice.range(3_000, 14_000)),
        60..78 => Script::Fail(u32::try_from(dice.range(1, 4)).unwrap_or(1)),
        78..86 => Script::Fatal,
        86..94 => Script::Panic,
        // Where hosts stay dead, poison would leave none.
        _ if matches!(mode, Mode::Liveness | Mode::FleetLiveness) => Script::Succeed(10),
        _ => Script::Poison,
    }
}

pub(super) fn acts(
    dice: &Dice,
    mode: Mode,
    tasks: usize,
    heal_at: Duration,
) -> Vec<(Duration, Act)> {
    if matches!(mode, Mode::Liveness | Mode::FleetLiveness) {
        return Vec::new();
    }
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1);
    let act = |_| {
        let task = dice.index(tasks);
        let act = match dice.range(0, 8) {
            0 => Act::Cancel(task),
            1..4 => Act::Stop(task),
            4 => Act::Postpone(task, dice.ms(0, 8_000)),
            5 => Act::Hurry(task),
            _ => Act::Redrive(task),
        };
        (dice.ms(0, window), act)
    };
    let mut acts: Vec<_> = (0..dice.range(0, 10)).map(act).collect();
    acts.sort_by_key(|(at, _)| *at);
    acts
}
