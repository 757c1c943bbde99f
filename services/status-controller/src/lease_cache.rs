//! Caches the leases that this process wrote recently, so that a heartbeat is written only when its lease needs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_api::ReportAck;
use dueline_domain::{JobName, Policy, State, StateKind, Task, TaskId, Timestamp, Token};
use dueline_ports::OwnedTask;
use tokio::time::Instant;

/// Most cached leases. Beyond that, the lease that needs its next write first is removed.
const LEASES_MAX: usize = 200_000;

/// Identifies a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunKey {
    pub(crate) id: TaskId,
    pub(crate) token: Token,
    pub(crate) job: JobName,
}

impl RunKey {
    pub(crate) fn of(owned: &OwnedTask) -> Self {
        Self {
            id: owned.id,
            token: owned.token,
            job: owned.job.clone(),
        }
    }
}

/// A lease after its last write, on the monotonic clock of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachedLease {
    /// Never later than the end of the lease in the store.
    ends_at: Instant,
    /// Heartbeats from this time on must be written.
    write_at: Instant,
    cancel_requested: bool,
}

impl CachedLease {
    /// The lease of `task` after a write that was sent at `sent`, when the wall clock showed `now`. `None` if all
    /// heartbeats must be written: the task is not processing under this token, or heartbeats do not extend its lease.
    ///
    /// Workers heartbeat at least every `interval`.
    pub(crate) fn of(
        task: &Task,
        policy: &Policy,
        token: Token,
        sent: Instant,
        now: Timestamp,
        interval: Duration,
    ) -> Option<Self> {
        let policy = task.policy(policy);
        let State::Processing {
            token: current,
            lease,
        } = &task.state
        else {
            return None;
        };
        if *current != token || policy.heartbeat_increment.is_zero() {
            return None;
        }
        let ends_at = sent + lease.ends_at().since(now);
        let mut write_at = sent + policy.heartbeat_timeout / 2;
        // A lease that ends at its deadline cannot be renewed, so no heartbeat has to be written in time.
        let is_renewable = lease.deadline_at.is_none_or(|at| at > lease.expires_at);
        if is_renewable {
            let renewed_by = policy.heartbeat_timeout.min(policy.heartbeat_increment);
            // The owner stops the run when a quarter of `renewed_by` is left. After the last heartbeat that is not
            // written, the lease must last until the next heartbeat and for the time to write that.
            let heartbeat_interval = interval.min(renewed_by / 4);
            let needed = renewed_by / 4 + heartbeat_interval + renewed_by / 8;
            write_at = write_at.min(ends_at.checked_sub(needed).unwrap_or(sent));
        }
        Some(Self {
            ends_at,
            write_at: write_at.min(ends_at),
            cancel_requested: task.cancel_requested,
        })
    }
}

/// The cached leases by run.
#[derive(Debug, Default)]
pub(crate) struct LeaseCache(Mutex<LeaseCacheState>);

#[derive(Debug, Default)]
struct LeaseCacheState {
    runs: BTreeMap<RunKey, LeaseCacheEntry>,
    /// The runs with a cached lease, by the time of their next write.
    by_time: BTreeSet<(Instant, RunKey)>,
}

#[derive(Debug, Default)]
struct LeaseCacheEntry {
    lease: Option<CachedLease>,
    /// Writes in flight.
    in_flight: usize,
    /// Whether writes have overlapped, so that their order is unknown.
    has_overlap: bool,
}

/// A write of a run in flight. Its begin removes the cached lease; only [`LeaseWrite::succeeded`] caches a new one.
#[derive(Debug)]
pub(crate) struct LeaseWrite<'a> {
    cache: &'a LeaseCache,
    key: Option<RunKey>,
}

impl LeaseCache {
    fn lock(&self) -> MutexGuard<'_, LeaseCacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a heartbeat that needs no write.
    pub(crate) fn answer(&self, key: &RunKey, now: Instant) -> Option<ReportAck> {
        let lease = self.lock().runs.get(key)?.lease?;
        (now < lease.write_at).then(|| ReportAck {
            state: StateKind::Processing,
            cancel_requested: lease.cancel_requested,
            lease: Some(lease.ends_at.saturating_duration_since(now)),
        })
    }

    /// Begins a write of this run, of any kind.
    pub(crate) fn begin_write(&self, key: RunKey) -> LeaseWrite<'_> {
        let mut state = self.lock();
        state.remove(&key);
        let entry = state.runs.entry(key.clone()).or_default();
        entry.has_overlap |= entry.in_flight > 0;
        entry.in_flight += 1;
        LeaseWrite {
            cache: self,
            key: Some(key),
        }
    }
}

impl LeaseCacheState {
    fn remove(&mut self, key: &RunKey) {
        let entry = self.runs.get_mut(key);
        if let Some(lease) = entry.and_then(|entry| entry.lease.take()) {
            self.by_time.remove(&(lease.write_at, key.clone()));
        }
    }

    fn insert(&mut self, key: RunKey, lease: CachedLease) {
        let entry = self.runs.entry(key.clone()).or_default();
        entry.lease = Some(lease);
        self.by_time.insert((lease.write_at, key));
    }

    /// Removes leases whose next heartbeat must be written, and those beyond [`LEASES_MAX`].
    fn evict(&mut self, now: Instant) {
        while let Some((write_at, _)) = self.by_time.first() {
            if *write_at > now && self.by_time.len() <= LEASES_MAX {
                return;
            }
            let Some((_, key)) = self.by_time.pop_first() else {
                return;
            };
            // A run with a write in flight has no cached lease, so this entry counts no write.
            self.runs.remove(&key);
        }
    }

    fn end_write(&mut self, key: RunKey, lease: Option<CachedLease>, now: Instant) {
        let Some(entry) = self.runs.get_mut(&key) else {
            return;
        };
        entry.in_flight -= 1;
        let has_overlap = entry.has_overlap;
        if entry.in_flight == 0 {
            self.runs.remove(&key);
        }
        if let Some(lease) = lease.filter(|_| !has_overlap) {
            self.insert(key, lease);
        }
        self.evict(now);
    }
}

impl LeaseWrite<'_> {
    /// The write is durable. Caches the written lease, if there is one, unless another write has overlapped.
    pub(crate) fn succeeded(mut self, lease: Option<CachedLease>) {
        self.end(lease);
    }

    fn end(&mut self, lease: Option<CachedLease>) {
        if let Some(key) = self.key.take() {
            let now = Instant::now();
            self.cache.lock().end_write(key, lease, now);
        }
    }
}

impl Drop for LeaseWrite<'_> {
    fn drop(&mut self) {
        self.end(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> RunKey {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        RunKey {
            id: TaskId::from_bytes(id),
            token: Token::from_random(9),
            job: JobName::parse("mail").unwrap(),
        }
    }

    fn lease(for_ms: u64) -> Option<CachedLease> {
        let write_at = Instant::now() + Duration::from_millis(for_ms);
        Some(CachedLease {
            ends_at: write_at + Duration::from_secs(1),
            write_at,
            cancel_requested: false,
        })
    }

    fn is_cached(leases: &LeaseCache, number: u64) -> bool {
        leases.answer(&key(number), Instant::now()).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_overlap_or_fail_leave_no_cached_lease() {
        let leases = LeaseCache::default();
        leases.begin_write(key(1)).succeeded(lease(1_000));
        assert!(is_cached(&leases, 1));
        let (one, other) = (leases.begin_write(key(1)), leases.begin_write(key(1)));
        assert!(!is_cached(&leases, 1));
        one.succeeded(lease(1_000));
        other.succeeded(lease(1_000));
        assert!(!is_cached(&leases, 1), "the order of both is not known");
        leases.begin_write(key(1)).succeeded(lease(1_000));
        assert!(is_cached(&leases, 1));
        drop(leases.begin_write(key(1)));
        assert!(!is_cached(&leases, 1));
        assert!(leases.lock().runs.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn leases_that_need_a_write_and_those_beyond_the_limit_are_removed() {
        let leases = LeaseCache::default();
        leases.begin_write(key(1)).succeeded(lease(10));
        leases.begin_write(key(2)).succeeded(lease(1_000));
        tokio::time::advance(Duration::from_millis(10)).await;
        assert!(!is_cached(&leases, 1));
        leases.begin_write(key(3)).succeeded(lease(500));
        assert_eq!(leases.lock().runs.len(), 2);
        for number in 0..LEASES_MAX as u64 {
            leases.begin_write(key(10 + number)).succeeded(lease(2_000));
        }
        assert_eq!(leases.lock().runs.len(), LEASES_MAX);
        assert_eq!(leases.lock().by_time.len(), LEASES_MAX);
        assert!(!is_cached(&leases, 2) && !is_cached(&leases, 3));
        assert!(is_cached(&leases, 10));
    }
}
