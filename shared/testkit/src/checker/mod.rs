//! Reads a history and says which promise was broken.

mod life;
mod sometimes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use dueline_domain::{JobName, Policy, Task, TaskId, check_task};

use self::life::Life;
use crate::{Entry, What};

pub use self::sometimes::sometimes;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The promise.
    pub rule: &'static str,
    /// What was seen instead.
    pub detail: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// What a test expects of a run beyond what must always hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected {
    /// Whether every task must have ended.
    pub quiet: bool,
    /// Fewest submits that were acknowledged.
    pub acked_min: usize,
    /// Fewest tasks that succeeded after the last entry `What::Note("healed")`.
    pub successes_after_heal_min: usize,
}

/// Checks histories of tasks against the promises, task by task.
#[derive(Clone, Debug)]
pub struct Checker {
    /// The policy of each job.
    pub policies: BTreeMap<JobName, Policy>,
    /// How far any clock may be from the true time.
    pub skew_max: Duration,
    /// Jobs whose tasks need not end, because the test took away what they need.
    pub given_up: BTreeSet<JobName>,
}

impl Checker {
    /// Every broken promise in `entries`, given the tasks that the store holds in the end.
    pub fn check(&self, entries: &[Entry], tasks: &[Task], expected: Expected) -> Vec<Broken> {
        let mut found = Found::default();
        let mut lives: BTreeMap<TaskId, Life> = BTreeMap::new();
        let (mut sent, mut acked) = (BTreeSet::new(), BTreeSet::new());
        let mut successes = 0;
        for entry in entries {
            match &entry.what {
                What::SubmitSent { id } => {
                    sent.insert(*id);
                }
                What::SubmitAcked { id } => {
                    acked.insert(*id);
                }
                What::Note("healed") => successes = 0,
                What::Note(_) | What::Refused { .. } | What::Repeated { .. } => {}
                What::RunStarted { id, .. }
                | What::RunEnded { id, .. }
                | What::RunStopped { id, .. }
                | What::MessageSent { id, .. }
                | What::MessageDeleted { id, .. } => {
                    found.unless(sent.contains(id), "no ghosts", || {
                        format!("{:?}", entry.what)
                    });
                    let life = lives.entry(*id).or_default();
                    life.event(entry, &mut found);
                }
                What::Stored { task, .. } => {
                    found.unless(sent.contains(&task.id), "no ghosts", || task.id.to_string());
                    let life = lives.entry(task.id).or_default();
                    life.stored(entry, self, &mut found);
                    successes += usize::from(life.has_just_succeeded());
                }
            }
        }
        let in_store: BTreeMap<TaskId, &Task> = tasks.iter().map(|task| (task.id, task)).collect();
        for id in &acked {
            found.unless(in_store.contains_key(id), "durable", || {
                format!("task {id} was acknowledged and is gone")
            });
        }
        for (id, task) in &in_store {
            let last = lives.get(id).and_then(Life::last);
            found.unless(last == Some(*task), "every write is in the history", || {
                format!("task {id} is {:?}", task.state)
            });
            found.unless(check_task(task).is_ok(), "no orphan", || id.to_string());
            let must_end = expected.quiet && !self.given_up.contains(&task.job);
            let ended = task.kind().is_final() || !must_end;
            found.unless(ended, "every task ends", || {
                format!("task {id} is {:?}", task.state)
            });
        }
        for (id, life) in &lives {
            life.end(id, self, &mut found);
        }
        found.unless(acked.len() >= expected.acked_min, "not vacuous", || {
            format!("{} submits were acknowledged", acked.len())
        });
        let enough = successes >= expected.successes_after_heal_min;
        found.unless(enough, "not vacuous", || {
            format!("{successes} tasks succeeded after the last heal")
        });
        found.0
    }

    fn policy(&self, task: &Task) -> Policy {
        let job = self.policies.get(&task.job).cloned().unwrap_or_default();
        task.policy(&job).into_owned()
    }
}

/// Collects broken promises.
#[derive(Default)]
struct Found(Vec<Broken>);

impl Found {
    fn unless(&mut self, holds: bool, rule: &'static str, detail: impl FnOnce() -> String) {
        if !holds {
            let detail = detail();
            self.0.push(Broken { rule, detail });
        }
    }
}
