//! Reclaims the tasks of workers whose registration has expired.
//!
//! The consumer reclaims lapsed leases by the wall clock. When that clock steps back, a lease seems to end later by the
//! size of the step. So a lease of a silent worker counts as over, too, once this process has seen it unchanged for as
//! long as it may last, on the monotonic clock: no lease counts as further ahead than its own length. A worker that is
//! alive renews its leases before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_domain::{Task, WorkerId, WriteId};
use dueline_ports::StoreError;
use tokio::time::Instant;

use crate::{StatusControllerService, lease_cache::RunKey};

/// Most tasks of one worker whose leases are read in one round; the next round continues.
const LEASES_MAX: usize = 1_000;

/// Workers whose registration has expired and that may own tasks, each with the leases that were seen.
#[derive(Debug, Default)]
pub(crate) struct SilentWorkers(Mutex<BTreeMap<WorkerId, SeenLeases>>);

type SeenLeases = BTreeMap<RunKey, SeenLease>;

#[derive(Debug)]
struct SeenLease {
    /// The latest write of the task: a renewal is a write. After the clock has stepped back it moves no time of the lease.
    write: WriteId,
    length: Duration,
    /// When this process first saw the task as it is.
    since: Instant,
}

impl SeenLease {
    /// The lease of a task that was read at `now`.
    fn of(task: &Task, now: Instant) -> Option<Self> {
        let lease = task.lease()?;
        Some(Self {
            write: task.write,
            length: lease.ends_at().since(lease.heartbeat_at),
            since: now,
        })
    }

    /// Whether the task has not changed for as long as the lease lasts.
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= self.length
    }
}

impl SilentWorkers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, SeenLeases>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, worker: &WorkerId) {
        self.lock().entry(worker.clone()).or_default();
    }

    /// The worker has registered again, or owns nothing any more.
    pub(crate) fn remove(&self, worker: &WorkerId) {
        self.lock().remove(worker);
    }

    fn workers(&self) -> Vec<WorkerId> {
        self.lock().keys().cloned().collect()
    }

    /// Records the present leases of a worker. Returns the keys of those that are over.
    fn record(&self, worker: &WorkerId, leases: SeenLeases, now: Instant) -> BTreeSet<RunKey> {
        let mut workers = self.lock();
        let Some(seen) = workers.get_mut(worker) else {
            return BTreeSet::new();
        };
        let write_of = |key: &RunKey| leases.get(key).map(|lease| lease.write);
        seen.retain(|key, seen| write_of(key) == Some(seen.write));
        for (key, lease) in leases {
            seen.entry(key).or_insert(lease);
        }
        let over = seen.iter().filter(|(_, lease)| lease.is_over(now));
        over.map(|(key, _)| key.clone()).collect()
    }
}

impl StatusControllerService {
    /// Reclaims the tasks of silent workers whose leases are over.
    pub(crate) async fn reclaim_from_silent_workers(&self) -> Result<(), StoreError> {
        for worker in self.silent.workers() {
            let now = self.deps.clock.now();
            let mut owned = self.deps.store.owned(now, Some(&worker)).await?;
            if owned.is_empty() {
                self.silent.remove(&worker);
                continue;
            }
            owned.truncate(LEASES_MAX);
            let (now, mut leases) = (Instant::now(), SeenLeases::new());
            for task in &owned {
                let key = RunKey::of(task);
                // Read as of the last acknowledged write, which the list of owned tasks may lack.
                let stored = self.deps.store.get(&task.job, &task.id).await?;
                let stored = stored.filter(|stored| stored.state.token() == Some(task.token));
                let lease = stored.and_then(|stored| SeenLease::of(&stored, now));
                leases.extend(lease.map(|lease| (key, lease)));
            }
            let over = self.silent.record(&worker, leases, now);
            owned.retain(|task| over.contains(&RunKey::of(task)));
            let tasks = self.reclaim_each(&owned).await?;
            if tasks > 0 {
                tracing::warn!(
                    worker.id = %worker, tasks,
                    "tasks of a silent worker are reclaimed although their leases seem to last; the wall clock may have \
                     stepped back",
                );
            }
        }
        Ok(())
    }
}
