//! Schedules in worlds: their creation, and what must hold for each of them whatever happens to the consumers.

use std::collections::{BTreeMap, BTreeSet};

use dueline_domain::{
    CatchUp, FiringEnd, JobName, Schedule, ScheduleName, Task, TaskId, Timestamp,
};
use dueline_ports::{PutSchedule, Rng as _, StoreError};
use dueline_schedule::{Change, Rule, ScheduleKey};
use dueline_testkit::{Counters, HistoryEntry, HistoryEvent};

use crate::{
    scenario::{BASE, Scenario},
    world::SimulatedWorld,
};

/// Two tasks for one firing would be two runs of the same work.
const ONCE: &str = "a firing has one task";
/// A firing follows from the rule, or a user has requested it.
const TIMES: &str = "a firing is at a time of its rule";
/// Neither a task nor its run comes before its time.
const EARLY: &str = "no firing is early";
/// Each time of a rule has a task, or the record says what became of it, as the policies demand.
const LOST: &str = "no firing is lost";
/// The time up to which firings are decided never goes back.
const DECIDED: &str = "what is decided stays decided";
/// The store has the task of each firing whose record says so.
const MISSING: &str = "no task of a firing is missing";

/// Stores the schedules of the scenario.
pub(crate) async fn create(world: &SimulatedWorld) -> Result<(), StoreError> {
    for planned in &world.scenario.schedules {
        let job = world.scenario.jobs[planned.job].name.clone();
        let (name, spec) = (planned.name.clone(), planned.spec.clone());
        let write = world.rng.write_id();
        let created = Change::create(job, name, spec, "simulation".into(), BASE, write);
        let schedule = created.unwrap_or_else(|error| unreachable!("{error}"));
        let puts = vec![PutSchedule {
            schedule,
            seen: None,
        }];
        let mut results = world.store.put_schedules(puts).await;
        results.pop().unwrap_or(Err(StoreError::Throttled))?;
    }
    Ok(())
}

/// What the history says against the rules of schedules.
pub(crate) fn check(
    entries: &[HistoryEntry],
    scenario: &Scenario,
    counters: &Counters,
) -> Vec<String> {
    let mut found = Findings {
        failures: Vec::new(),
        counters,
    };
    let mut series = BTreeMap::<_, Series>::new();
    let mut firings = BTreeMap::<TaskId, Task>::new();
    for entry in entries {
        match &entry.event {
            HistoryEvent::ScheduleStored { schedule } => {
                let key = (schedule.job.clone(), schedule.name.clone());
                let series = series.entry(key).or_default();
                series.add_version(schedule, &mut found);
            }
            HistoryEvent::Stored {
                verb: None, task, ..
            } => {
                if let Some((key, nominal_at)) = firing(task) {
                    let series = series.entry(key).or_default();
                    series.add_task(task, nominal_at, entry, scenario, &mut found);
                    firings.insert(task.id, (**task).clone());
                }
            }
            HistoryEvent::Repeated { verb: None, id } if firings.contains_key(id) => {
                counters.count("firing met by a second turn");
            }
            HistoryEvent::RunStarted { id, .. } => {
                let early = firings
                    .get(id)
                    .filter(|task| task.run_at > entry.at.after(scenario.skew_max));
                if let Some(task) = early {
                    let run_at = task.run_at;
                    found.fail(EARLY, || format!("{id} ran at {}, due {run_at}", entry.at));
                }
            }
            _ => {}
        }
    }
    for (key, series) in &series {
        series.check_end(key, &mut found);
    }
    found.failures
}

type SeriesKey = (JobName, ScheduleName);

/// The schedule and the nominal time of a task, if a firing created it.
fn firing(task: &Task) -> Option<(SeriesKey, Timestamp)> {
    let firing = task.options.as_ref()?.firing.as_ref()?;
    let key = (task.job.clone(), firing.schedule.clone());
    Some((key, firing.nominal_at))
}

struct Findings<'a> {
    failures: Vec<String>,
    counters: &'a Counters,
}

impl Findings<'_> {
    fn fail(&mut self, property: &str, detail: impl FnOnce() -> String) {
        self.failures.push(format!("{property}: {}", detail()));
    }

    fn count(&self, times: u64, name: &'static str) {
        if times > 0 {
            self.counters.add(name, times);
        }
    }
}

/// What has happened to one schedule so far.
#[derive(Default)]
struct Series {
    latest: Option<Schedule>,
    /// The tasks by their nominal times.
    tasks: BTreeMap<Timestamp, TaskId>,
    /// Nominal times that users have requested.
    requested: BTreeSet<Timestamp>,
}

impl Series {
    fn add_task(
        &mut self,
        task: &Task,
        nominal_at: Timestamp,
        entry: &HistoryEntry,
        scenario: &Scenario,
        found: &mut Findings<'_>,
    ) {
        let id = task.id;
        let what = || format!("{id} of {} for {nominal_at}, at {}", task.job, entry.at);
        if let Some(other) = self.tasks.insert(nominal_at, id) {
            found.fail(ONCE, || format!("{}, after {other}", what()));
        }
        let Some(schedule) = &self.latest else {
            return found.fail(TIMES, what);
        };
        let key = ScheduleKey {
            job: &schedule.job,
            name: &schedule.name,
        };
        if key.task_id(nominal_at) != id {
            found.fail(ONCE, || format!("{} has another id", what()));
        }
        // A consumer that read a rule before it was replaced may still carry it out.
        let planned = scenario.rules_of(&schedule.name);
        let is_planned = planned
            .iter()
            .any(|rule| rule.next_after(nominal_at.before(MS)) == Some(nominal_at));
        let is_requested = self.requested.contains(&nominal_at);
        if !is_planned && !is_requested {
            found.fail(TIMES, what);
        }
        if task.run_at < nominal_at || task.run_at > nominal_at.after(schedule.spec.jitter) {
            found.fail(EARLY, || format!("{} is due at {}", what(), task.run_at));
        }
        if !is_requested && nominal_at > entry.at.after(scenario.skew_max) {
            found.fail(EARLY, what);
        }
    }

    fn add_version(&mut self, after: &Schedule, found: &mut Findings<'_>) {
        self.requested.extend(&after.triggers);
        if let Some(before) = self.latest.replace(after.clone()) {
            self.check_step(&before, after, found);
        }
    }

    fn check_step(&self, before: &Schedule, after: &Schedule, found: &mut Findings<'_>) {
        let name = &after.name;
        if after.decided_until < before.decided_until {
            found.fail(DECIDED, || {
                let (from, to) = (before.decided_until, after.decided_until);
                format!("{name}: from {from} back to {to}")
            });
        }
        if after.counts.repaired > before.counts.repaired {
            found.fail(MISSING, || format!("{name} at {}", after.changed_at));
        }
        let is_other_rule = before.spec.rule != after.spec.rule;
        let is_resumed = before.paused.is_some() && after.paused.is_none();
        if is_other_rule || is_resumed {
            return check_dropped(before, after, is_other_rule, found);
        }
        let requested = before
            .triggers
            .iter()
            .filter(|at| !after.triggers.contains(at));
        let requested: Vec<_> = requested.copied().collect();
        found.count(requested.len() as u64, "requested firing carried out");
        let waited = before.queued.map(|queued| queued.nominal_at);
        let waits = after.queued.map(|queued| queued.nominal_at);
        let mut expected = by_policy(before, after, found);
        found.count(expected.len() as u64, "firing carried out");
        expected.extend(requested);
        if waits.is_some() && waits != waited {
            found.count(1, "firing waited");
        }
        expected.extend(waited);
        expected.retain(|at| Some(*at) != waits && !self.tasks.contains_key(at));
        let skipped = after.counts.skipped - before.counts.skipped;
        found.count(skipped, "firing skipped");
        if expected.len() as u64 > skipped {
            found.fail(LOST, || {
                format!("{name}: {expected:?} at {}", after.changed_at)
            });
        }
        self.check_backfills(before, after, found);
    }

    fn check_backfills(&self, before: &Schedule, after: &Schedule, found: &mut Findings<'_>) {
        for range in &before.backfills {
            let rest = after.backfills.iter().find(|rest| rest.to == range.to);
            let until = rest.map_or(range.to, |rest| rest.from);
            if until > range.from {
                found.count(1, "backfill carried out");
            }
            for at in times(before, range.from, until) {
                if !self.tasks.contains_key(&at) {
                    found.fail(LOST, || format!("{} at {at} of a backfill", after.name));
                }
            }
        }
    }

    fn check_end(&self, (_, name): &SeriesKey, found: &mut Findings<'_>) {
        let Some(last) = &self.latest else { return };
        if let Some(wake_at) = last.wake_at() {
            found.fail(LOST, || format!("{name} still waits for {wake_at}"));
        }
        let left = times(last, last.decided_until.after(MS), Timestamp::MAX);
        if last.paused.is_none() && !left.is_empty() {
            found.fail(LOST, || format!("{name} ended before {left:?}"));
        }
    }
}

const MS: std::time::Duration = std::time::Duration::from_millis(1);

/// The times of the rule of a schedule, which ends.
fn times(schedule: &Schedule, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let rule = Rule::parse(&schedule.spec.rule).unwrap_or_else(|error| unreachable!("{error}"));
    rule.between(from, to, 10_000).times
}

/// The times of the rule that a turn has decided about and must carry out by the catch-up policy. Checks that the others
/// are counted as missed.
fn by_policy(before: &Schedule, after: &Schedule, found: &mut Findings<'_>) -> Vec<Timestamp> {
    let now = after.decided_until;
    let mut all = times(before, before.decided_until.after(MS), now.after(MS));
    let policy = before.spec.catch_up;
    let late = all.partition_point(|at| at.after(policy.grace()) < now);
    let kept = match policy.catch_up() {
        CatchUp::None => 0,
        CatchUp::Latest => usize::from(late == all.len()),
        CatchUp::All { max } => usize::try_from(max).unwrap_or(0),
    };
    let missed = late.saturating_sub(kept);
    let counted = after.counts.missed - before.counts.missed;
    found.count(counted, "firing missed");
    if counted != missed as u64 {
        found.fail(LOST, || {
            format!(
                "{}: {counted} of {missed} are counted as missed",
                after.name
            )
        });
    }
    all.split_off(missed)
}

/// A new rule, or the end of a pause, says what it drops.
fn check_dropped(
    before: &Schedule,
    after: &Schedule,
    is_other_rule: bool,
    found: &mut Findings<'_>,
) {
    let from = before.decided_until.after(MS);
    let dropped = times(before, from, after.decided_until.after(MS));
    let Some(last) = dropped.last() else { return };
    let name = match is_other_rule {
        true => "firing dropped by a new rule",
        false => "firing skipped by a pause",
    };
    found.count(dropped.len() as u64, name);
    let is_said = after.recent.iter().any(|record| {
        let is_end = matches!(record.end, FiringEnd::Dropped | FiringEnd::Paused);
        is_end && record.last == *last && record.count >= dropped.len() as u64
    });
    if !is_said {
        found.fail(LOST, || format!("{}: {dropped:?}, {name}", after.name));
    }
}

impl Scenario {
    /// All rules that users give this schedule.
    fn rules_of(&self, name: &ScheduleName) -> Vec<Rule> {
        let planned = self.schedules.iter().enumerate();
        let planned = planned.filter(|(_, planned)| planned.name == *name);
        let mut rules = Vec::new();
        for (number, planned) in planned {
            rules.extend(Rule::parse(&planned.spec.rule));
            for (_, change) in &self.schedule_changes {
                if let Change::Replace(spec) = &change.change
                    && change.schedule == number
                {
                    rules.extend(Rule::parse(&spec.rule));
                }
            }
        }
        rules
    }
}
