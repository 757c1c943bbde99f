//! The part of the store seam that keeps the levels of quotas.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use dueline_domain::{JobName, Timestamp, WriteId};

/// A level of a job's quota to store. Consumers decide what it means; a store only keeps the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSwap {
    /// The job.
    pub job: JobName,
    /// The level that this one replaces; `None` if there must be none.
    pub seen: Option<i64>,
    /// The new level.
    pub level: i64,
    /// Names the write, so that a call that the transport has repeated is recognised.
    pub write: WriteId,
    /// When this is.
    pub now: Timestamp,
}

/// The result of a [`QuotaSwap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaWrite {
    /// The level was replaced.
    Done,
    /// It was not, because the stored level is this one.
    Differs(Option<i64>),
}

/// The levels of a store that one process owns.
#[derive(Debug, Default)]
pub struct LocalQuotas(Mutex<HashMap<JobName, i64>>);

impl LocalQuotas {
    /// As [`JobStore::swap_quota`].
    pub fn swap(&self, swap: QuotaSwap) -> QuotaWrite {
        let mut levels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = levels.get(&swap.job).copied();
        if stored != swap.seen {
            return QuotaWrite::Differs(stored);
        }
        levels.insert(swap.job, swap.level);
        QuotaWrite::Done
    }

    /// Forgets a job that was deleted.
    pub fn forget(&self, job: &JobName) {
        let mut levels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        levels.remove(job);
    }
}
