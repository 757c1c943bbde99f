//! The schedules of a scenario, the changes that users make to them, and what happens to those who carry them out.

use std::time::Duration;

use dueline_domain::{
    Backfill, CatchUp, CatchUpPolicy, Overlap, RuleSpec, ScheduleName, ScheduleSpec, TaskTemplate,
};
use dueline_schedule::Change;

use super::{BASE, Disruption, ScenarioRng};
use crate::TaskScript;

/// The schedules end this long after everything has healed.
const AFTER_HEAL: Duration = Duration::from_secs(12);

/// A schedule of a world.
#[derive(Clone, Debug)]
pub struct PlannedSchedule {
    /// Its name.
    pub name: ScheduleName,
    /// Index of its job.
    pub job: usize,
    /// What its user has set at first.
    pub spec: ScheduleSpec,
}

/// A change that a user makes to a schedule.
#[derive(Clone, Debug)]
pub struct PlannedChange {
    /// Index of the schedule.
    pub schedule: usize,
    /// The change.
    pub change: Change,
}

pub(super) fn plan(rng: &ScenarioRng, jobs: usize, heal_at: Duration) -> Vec<PlannedSchedule> {
    let schedule = |number| PlannedSchedule {
        name: ScheduleName::parse(&format!("s{number}")).unwrap_or_else(|_| unreachable!()),
        job: rng.index(jobs),
        spec: ScheduleSpec {
            rule: rule(rng, heal_at),
            jitter: match rng.chance(30) {
                true => rng.ms(1, 3_000),
                false => Duration::ZERO,
            },
            catch_up: catch_up(rng),
            overlap: Overlap::ALL[rng.index(Overlap::ALL.len())],
            template: TaskTemplate {
                payload: script(rng).payload(),
                ..TaskTemplate::default()
            },
            ..ScheduleSpec::default()
        },
    };
    (0..rng.range(1, 5)).map(schedule).collect()
}

fn rule(rng: &ScenarioRng, heal_at: Duration) -> RuleSpec {
    let every = rng.range(2, 11);
    let timing = match rng.chance(50) {
        true => format!("@every {every}s"),
        false => format!("*/{every} * * * * *"),
    };
    RuleSpec {
        timing,
        end: Some(BASE.after(heal_at + AFTER_HEAL)),
        ..RuleSpec::default()
    }
}

fn catch_up(rng: &ScenarioRng) -> CatchUpPolicy {
    let catch_up = match rng.index(3) {
        0 => CatchUp::None,
        1 => CatchUp::Latest,
        _ => CatchUp::All {
            max: u32::try_from(rng.range(1, 6)).unwrap_or(1),
        },
    };
    let grace = match rng.chance(60) {
        true => rng.ms(500, 5_000),
        false => Duration::from_secs(60),
    };
    CatchUpPolicy::new(catch_up, grace).unwrap_or_else(|_| unreachable!())
}

fn script(rng: &ScenarioRng) -> TaskScript {
    match rng.range(0, 10) {
        0..5 => TaskScript::Succeed(rng.range(0, 1_500)),
        5..8 => TaskScript::Succeed(rng.range(3_000, 12_000)),
        8 => TaskScript::Fail(1),
        _ => TaskScript::Fatal,
    }
}

pub(super) fn changes(
    rng: &ScenarioRng,
    schedules: &[PlannedSchedule],
    heal_at: Duration,
) -> Vec<(Duration, PlannedChange)> {
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1);
    let mut changes = Vec::new();
    for number in 0..rng.range(0, 8) {
        let schedule = rng.index(schedules.len());
        let at = rng.ms(0, window);
        let mut push = |at, change| changes.push((at, PlannedChange { schedule, change }));
        match rng.range(0, 8) {
            0..3 => push(at, Change::Trigger),
            3 => {
                let mut spec = schedules[schedule].spec.clone();
                spec.rule = rule(rng, heal_at);
                push(at, Change::Replace(Box::new(spec)));
            }
            4 => {
                // Ranges with different ends can be told apart.
                let to = BASE.before(Duration::from_secs(number));
                let from = to.before(rng.ms(20_000, 60_000));
                push(at, Change::Backfill(Backfill { from, to }));
            }
            _ => {
                let (by, reason) = ("ann".into(), "too much".into());
                push(at, Change::Pause { by, reason });
                push(at + rng.ms(100, 12_000), Change::Resume);
            }
        }
    }
    changes.sort_by_key(|(at, _)| *at);
    changes
}

/// Crashes of consumers, and jumps of their clocks.
pub(super) fn disruptions(
    rng: &ScenarioRng,
    consumers: usize,
    heal_at: Duration,
    skew_max_ms: u64,
) -> Vec<(Duration, Disruption)> {
    let window = u64::try_from(heal_at.as_millis()).unwrap_or(1);
    let mut all = Vec::new();
    for _ in 0..rng.range(1, 5) {
        let restart_after = Some(rng.ms(100, 9_000));
        let crash = Disruption::Crash(rng.index(consumers), restart_after);
        all.push((rng.ms(0, window), crash));
    }
    for _ in 0..rng.range(0, 4) {
        let skew = rng.range(0, 2 * skew_max_ms + 1).cast_signed() - skew_max_ms.cast_signed();
        let jump = Disruption::ClockJump(rng.index(consumers), skew);
        all.push((rng.ms(0, window), jump));
    }
    all
}
