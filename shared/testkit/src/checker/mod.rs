//! Reads a history and reports each violated property.

mod events;
mod timeline;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use dueline_domain::{JobName, Policy, Task, TaskId, check_task};

use self::timeline::TaskTimeline;
use crate::{HistoryEntry, HistoryEvent};

pub use self::events::count_events;

/// A violated property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyViolation {
    /// The property, as a sentence.
    pub property: &'static str,
    /// What the history shows.
    pub detail: String,
}

impl fmt::Display for PropertyViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.detail)
    }
}

/// What a test expects of a run besides the properties that hold for every run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunExpectations {
    /// Whether all tasks must have ended, except those of [`Checker::jobs_that_may_not_end`].
    pub all_tasks_end: bool,
    /// Fewest acknowledged submits.
    pub acked_min: usize,
    /// Fewest tasks that succeed after the last `HistoryEvent::Note("healed")`.
    pub successes_after_heal_min: usize,
}

/// Checks the history of each task against the properties.
#[derive(Clone, Debug)]
pub struct Checker {
    /// The policy of each job.
    pub policies: BTreeMap<JobName, Policy>,
    /// The greatest difference of any clock from the true time.
    pub skew_max: Duration,
    /// Jobs whose tasks need not end, because the test disabled something that they need.
    pub jobs_that_may_not_end: BTreeSet<JobName>,
}

impl Checker {
    /// All violations in `entries`. `tasks` are the tasks in the store at the end.
    pub fn check(
        &self,
        entries: &[HistoryEntry],
        tasks: &[Task],
        expected: RunExpectations,
    ) -> Vec<PropertyViolation> {
        let mut violations = Violations::default();
        let mut timelines: BTreeMap<TaskId, TaskTimeline> = BTreeMap::new();
        let (mut sent, mut acked) = (BTreeSet::new(), BTreeSet::new());
        let mut successes = 0;
        for entry in entries {
            match &entry.event {
                HistoryEvent::SubmitSent { id } => {
                    sent.insert(*id);
                }
                HistoryEvent::SubmitAcked { id } => {
                    acked.insert(*id);
                }
                HistoryEvent::Note("healed") => successes = 0,
                HistoryEvent::Note(_)
                | HistoryEvent::ScheduleStored { .. }
                | HistoryEvent::Refused { .. }
                | HistoryEvent::Repeated { .. } => {}
                HistoryEvent::RunStarted { id, .. }
                | HistoryEvent::RunEnded { id, .. }
                | HistoryEvent::RunStopped { id, .. }
                | HistoryEvent::Delivered { id, .. }
                | HistoryEvent::MessageSent { id, .. }
                | HistoryEvent::MessageDeleted { id, .. } => {
                    violations.require(sent.contains(id), "no unknown task or token", || {
                        format!("{:?}", entry.event)
                    });
                    let timeline = timelines.entry(*id).or_default();
                    timeline.add_event(entry, &mut violations);
                }
                HistoryEvent::Stored { task, verb, .. } => {
                    // No client submits the task of a firing.
                    let options = task.options.as_ref();
                    if verb.is_none() && options.is_some_and(|options| options.firing.is_some()) {
                        sent.insert(task.id);
                    }
                    violations.require(sent.contains(&task.id), "no unknown task or token", || {
                        task.id.to_string()
                    });
                    let timeline = timelines.entry(task.id).or_default();
                    timeline.add_write(entry, self, &mut violations);
                    successes += usize::from(timeline.has_just_succeeded());
                }
            }
        }
        let in_store: BTreeMap<TaskId, &Task> = tasks.iter().map(|task| (task.id, task)).collect();
        for id in &acked {
            violations.require(in_store.contains_key(id), "durable", || {
                format!("task {id} was acknowledged but is not in the store")
            });
        }
        for (id, task) in &in_store {
            let last = timelines.get(id).and_then(TaskTimeline::last);
            violations.require(last == Some(*task), "every write is in the history", || {
                format!("task {id} is {:?}", task.state)
            });
            violations.require(check_task(task).is_ok(), "every task is valid", || {
                id.to_string()
            });
            let must_end =
                expected.all_tasks_end && !self.jobs_that_may_not_end.contains(&task.job);
            let ended = task.kind().is_final() || !must_end;
            violations.require(ended, "every task ends", || {
                format!("task {id} is {:?}", task.state)
            });
            let is_settled = task.owed.is_none() || !must_end;
            violations.require(is_settled, "every record is delivered", || {
                format!("task {id} owes {:?}", task.owed)
            });
        }
        for (id, timeline) in &timelines {
            timeline.check_end(id, self, &mut violations);
        }
        let enough = acked.len() >= expected.acked_min;
        violations.require(enough, "enough work was done", || {
            format!("{} submits were acknowledged", acked.len())
        });
        let enough = successes >= expected.successes_after_heal_min;
        violations.require(enough, "enough work was done", || {
            format!("{successes} tasks succeeded after the last heal")
        });
        violations.0
    }

    fn policy(&self, task: &Task) -> Policy {
        let job = self.policies.get(&task.job).cloned().unwrap_or_default();
        task.policy(&job).into_owned()
    }
}

/// Collects violated properties.
#[derive(Default)]
struct Violations(Vec<PropertyViolation>);

impl Violations {
    /// Adds a violation unless the property holds.
    fn require(&mut self, holds: bool, property: &'static str, detail: impl FnOnce() -> String) {
        if !holds {
            let detail = detail();
            self.0.push(PropertyViolation { property, detail });
        }
    }
}
