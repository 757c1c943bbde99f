//! `prune`: goes through all tasks, idempotency keys, edges and remains of deleted jobs, a bounded number of items per call.
//!
//! DynamoDB's own expiry deletes most finished tasks free of charge; the pruner deletes the rest.

mod deleted_jobs;
mod edges;
mod keys;
mod tasks;

use std::sync::Arc;

use dueline_domain::{JobName, Timestamp};
use dueline_ports::{Pruned, StoreError};

use crate::{attr::Item, jobs::JobEntry, store::DynamoStore};

/// Most read units of one call: a megabyte.
const UNITS_MAX: f64 = 128.0;
/// Most queries of one call.
const READS_MAX: usize = 64;

/// Where the next call continues.
#[derive(Debug, Default)]
pub(crate) struct PruneCursor {
    stage: PruneStage,
    after: Option<Item>,
}

/// The items that the pruner reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum PruneStage {
    /// Nothing yet; the first job comes next.
    #[default]
    Start,
    /// The tasks of a job in a slot.
    Tasks(JobName, u16),
    /// The idempotency keys of a job in a slot.
    Keys(JobName, u16),
    /// The edges of a job in a slot.
    Edges(JobName, u16),
    /// The remains of deleted jobs.
    DeletedJobs,
}

/// How much one call may still read and delete.
struct PruneBudget {
    now: Timestamp,
    deletes: usize,
    deleted: usize,
    reads: usize,
    units: f64,
}

impl PruneBudget {
    const fn room(&self) -> usize {
        self.deletes - self.deleted
    }

    fn spent(&self) -> bool {
        self.room() == 0 || self.reads >= READS_MAX || self.units >= UNITS_MAX
    }
}

impl DynamoStore {
    pub(crate) async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let mut cursor = self.prune_cursor.lock().await;
        let jobs = self.jobs(false).await?;
        let entries: Vec<_> = jobs.iter().cloned().collect();
        let mut budget = PruneBudget {
            now,
            deletes: limit,
            deleted: 0,
            reads: 0,
            units: 0.0,
        };
        let mut more = true;
        while more && !budget.spent() {
            let cursor = &mut *cursor;
            let after = match &cursor.stage {
                PruneStage::Start => None,
                PruneStage::Tasks(job, slot) => match jobs.get(job) {
                    Some(entry) => {
                        self.prune_tasks(entry, *slot, cursor.after.take(), &mut budget)
                            .await?
                    }
                    None => None,
                },
                PruneStage::Keys(job, slot) => match jobs.get(job) {
                    Some(entry) => {
                        self.prune_keys(entry, *slot, cursor.after.take(), &mut budget)
                            .await?
                    }
                    None => None,
                },
                PruneStage::Edges(job, slot) => match jobs.get(job) {
                    Some(entry) => {
                        self.prune_edges(entry, *slot, cursor.after.take(), &mut budget)
                            .await?
                    }
                    None => None,
                },
                PruneStage::DeletedJobs => {
                    if !self.prune_deleted_jobs(&mut budget).await? {
                        cursor.stage = PruneStage::Start;
                        more = false;
                    }
                    continue;
                }
            };
            cursor.after = after;
            if cursor.after.is_none() {
                cursor.stage = self.next_stage(&cursor.stage, &entries);
            }
        }
        Ok(Pruned {
            deleted: budget.deleted,
            more,
        })
    }

    /// Each job's tasks slot by slot, then its keys and edges, then the next job by name.
    fn next_stage(&self, stage: &PruneStage, entries: &[Arc<JobEntry>]) -> PruneStage {
        let first = |after: Option<&JobName>| {
            let mut names = entries.iter().map(|entry| &entry.partitions.job);
            let next = names.find(|name| after.is_none_or(|after| *name > after));
            next.map_or(PruneStage::DeletedJobs, |name| {
                PruneStage::Tasks(name.clone(), 0)
            })
        };
        match stage {
            PruneStage::Start => first(None),
            PruneStage::Tasks(job, slot) if slot + 1 < self.slots => {
                PruneStage::Tasks(job.clone(), slot + 1)
            }
            PruneStage::Tasks(job, _) => PruneStage::Keys(job.clone(), 0),
            PruneStage::Keys(job, slot) if slot + 1 < self.slots => {
                PruneStage::Keys(job.clone(), slot + 1)
            }
            PruneStage::Keys(job, _) => PruneStage::Edges(job.clone(), 0),
            PruneStage::Edges(job, slot) if slot + 1 < self.slots => {
                PruneStage::Edges(job.clone(), slot + 1)
            }
            PruneStage::Edges(job, _) => first(Some(job)),
            PruneStage::DeletedJobs => PruneStage::Start,
        }
    }
}
