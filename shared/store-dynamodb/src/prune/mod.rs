//! The pruner's walk: one bounded stretch per call, over all tasks, keys and leftovers of deleted jobs.
//!
//! DynamoDB's own expiry removes most finished tasks for nothing; the walk finds what it does not see.

mod gone;
mod keys;
mod tasks;

use std::sync::Arc;

use dueline_domain::{JobName, Timestamp};
use dueline_ports::{Pruned, StoreError};

use crate::{attr::Item, jobs::Entry, store::Inner};

/// Read units of one call: a megabyte.
const UNITS_MAX: f64 = 128.0;
/// Queries of one call.
const READS_MAX: usize = 64;

/// Where the walk stands.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    stop: Stop,
    after: Option<Item>,
}

/// What is walked over next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Stop {
    /// The first job.
    #[default]
    Start,
    Tasks(JobName, u16),
    Keys(JobName, u16),
    /// What deleted jobs left.
    Gone,
}

/// What one call may still do.
struct Budget {
    now: Timestamp,
    deletes: usize,
    deleted: usize,
    reads: usize,
    units: f64,
}

impl Budget {
    const fn room(&self) -> usize {
        self.deletes - self.deleted
    }

    fn spent(&self) -> bool {
        self.room() == 0 || self.reads >= READS_MAX || self.units >= UNITS_MAX
    }
}

impl Inner {
    pub(crate) async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let mut walk = self.walk.lock().await;
        let jobs = self.jobs(false).await?;
        let entries: Vec<_> = jobs.iter().cloned().collect();
        let mut budget = Budget {
            now,
            deletes: limit,
            deleted: 0,
            reads: 0,
            units: 0.0,
        };
        let mut more = true;
        while more && !budget.spent() {
            let walk = &mut *walk;
            let after = match &walk.stop {
                Stop::Start => None,
                Stop::Tasks(job, slot) => match jobs.get(job) {
                    Some(entry) => {
                        self.prune_tasks(entry, *slot, walk.after.take(), &mut budget)
                            .await?
                    }
                    None => None,
                },
                Stop::Keys(job, slot) => match jobs.get(job) {
                    Some(entry) => {
                        self.prune_keys(entry, *slot, walk.after.take(), &mut budget)
                            .await?
                    }
                    None => None,
                },
                Stop::Gone => {
                    if !self.prune_gone(&mut budget).await? {
                        walk.stop = Stop::Start;
                        more = false;
                    }
                    continue;
                }
            };
            walk.after = after;
            if walk.after.is_none() {
                walk.stop = self.next_stop(&walk.stop, &entries);
            }
        }
        Ok(Pruned {
            deleted: budget.deleted,
            more,
        })
    }

    /// Each job's tasks slot by slot, then its keys, then the next job by name.
    fn next_stop(&self, stop: &Stop, entries: &[Arc<Entry>]) -> Stop {
        let first = |after: Option<&JobName>| {
            let mut names = entries.iter().map(|entry| &entry.home.job);
            let next = names.find(|name| after.is_none_or(|after| *name > after));
            next.map_or(Stop::Gone, |name| Stop::Tasks(name.clone(), 0))
        };
        match stop {
            Stop::Start => first(None),
            Stop::Tasks(job, slot) if slot + 1 < self.slots => Stop::Tasks(job.clone(), slot + 1),
            Stop::Tasks(job, _) => Stop::Keys(job.clone(), 0),
            Stop::Keys(job, slot) if slot + 1 < self.slots => Stop::Keys(job.clone(), slot + 1),
            Stop::Keys(job, _) => first(Some(job)),
            Stop::Gone => Stop::Start,
        }
    }
}
