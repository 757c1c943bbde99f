//! Leases that this process wrote lately, so that a heartbeat which would not save a run needs no write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_api::Reported;
use dueline_domain::{JobName, Policy, State, StateKind, Task, TaskId, Timestamp, Token};
use tokio::time::Instant;

/// Most runs that are remembered; beyond that the one that needs its next write first is forgotten.
const KNOWN_MAX: usize = 200_000;

/// A run: one owner of one task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunKey {
    pub(crate) id: TaskId,
    pub(crate) token: Token,
    pub(crate) job: JobName,
}

/// What a write left behind, on this process's own monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// When the lease ends, or a moment before.
    ends_at: Instant,
    /// The first heartbeat from this moment on must be written.
    write_at: Instant,
    cancel_requested: bool,
}

impl Written {
    /// What is known of `task` after a write that was sent at `sent`, when the wall clock showed `now`. `None` when
    /// its heartbeats must all be written: it is not running under this key, or heartbeats do not help it.
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
        let State::Processing { token: held, lease } = &task.state else {
            return None;
        };
        if *held != token || policy.heartbeat_increment.is_zero() {
            return None;
        }
        let ends_at = sent + lease.ends_at().since(now);
        let mut write_at = sent + policy.heartbeat_timeout / 2;
        // A lease that ends at its deadline cannot be renewed, so it needs no heartbeat in time.
        let is_renewable = lease.deadline_at.is_none_or(|at| at > lease.expires_at);
        if is_renewable {
            let renewed_by = policy.heartbeat_timeout.min(policy.heartbeat_increment);
            // The owner stops when a quarter of what a heartbeat is good for is left. The last heartbeat that is not
            // written must leave it the time for another one, and that one the time to be written.
            let beat = interval.min(renewed_by / 4);
            let needed = renewed_by / 4 + beat + renewed_by / 8;
            write_at = write_at.min(ends_at.checked_sub(needed).unwrap_or(sent));
        }
        Some(Self {
            ends_at,
            write_at: write_at.min(ends_at),
            cancel_requested: task.cancel_requested,
        })
    }
}

/// The runs that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    runs: BTreeMap<RunKey, Slot>,
    /// Those that are remembered, by the time of their next write.
    by_time: BTreeSet<(Instant, RunKey)>,
}

#[derive(Debug, Default)]
struct Slot {
    written: Option<Written>,
    /// Writes under way.
    under_way: usize,
    /// More than one was under way at a time, so nobody knows which came last.
    is_unclear: bool,
}

/// A write of a run that is under way. Nothing is remembered of the run meanwhile, and nothing afterwards unless
/// [`Writing::keep`] says so.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    heartbeats: &'a Heartbeats,
    key: Option<RunKey>,
}

impl Heartbeats {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a heartbeat that needs no write.
    pub(crate) fn answer(&self, key: &RunKey, now: Instant) -> Option<Reported> {
        let written = self.lock().runs.get(key)?.written?;
        (now < written.write_at).then(|| Reported {
            state: StateKind::Processing,
            cancel_requested: written.cancel_requested,
            lease: Some(written.ends_at.saturating_duration_since(now)),
        })
    }

    /// A write of this run begins, whatever it is.
    pub(crate) fn write(&self, key: RunKey) -> Writing<'_> {
        let mut known = self.lock();
        known.forget(&key);
        let slot = known.runs.entry(key.clone()).or_default();
        slot.is_unclear |= slot.under_way > 0;
        slot.under_way += 1;
        Writing {
            heartbeats: self,
            key: Some(key),
        }
    }
}

impl Known {
    fn forget(&mut self, key: &RunKey) {
        let slot = self.runs.get_mut(key);
        if let Some(written) = slot.and_then(|slot| slot.written.take()) {
            self.by_time.remove(&(written.write_at, key.clone()));
        }
    }

    fn remember(&mut self, key: RunKey, written: Written) {
        let slot = self.runs.entry(key.clone()).or_default();
        slot.written = Some(written);
        self.by_time.insert((written.write_at, key));
    }

    /// Drops what is of no use any more, and what is too much.
    fn tidy(&mut self, now: Instant) {
        while let Some((write_at, _)) = self.by_time.first() {
            if *write_at > now && self.by_time.len() <= KNOWN_MAX {
                return;
            }
            let Some((_, key)) = self.by_time.pop_first() else {
                return;
            };
            // While a write is under way nothing is remembered, so none is for this one.
            self.runs.remove(&key);
        }
    }

    fn ended(&mut self, key: RunKey, written: Option<Written>, now: Instant) {
        let Some(slot) = self.runs.get_mut(&key) else {
            return;
        };
        slot.under_way -= 1;
        let is_unclear = slot.is_unclear;
        if slot.under_way == 0 {
            self.runs.remove(&key);
        }
        if let Some(written) = written.filter(|_| !is_unclear) {
            self.remember(key, written);
        }
        self.tidy(now);
    }
}

impl Writing<'_> {
    /// The write is durable, and this is what it left.
    pub(crate) fn keep(mut self, written: Option<Written>) {
        self.end(written);
    }

    fn end(&mut self, written: Option<Written>) {
        if let Some(key) = self.key.take() {
            let now = Instant::now();
            self.heartbeats.lock().ended(key, written, now);
        }
    }
}

impl Drop for Writing<'_> {
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

    fn written(for_ms: u64) -> Option<Written> {
        let write_at = Instant::now() + Duration::from_millis(for_ms);
        Some(Written {
            ends_at: write_at + Duration::from_secs(1),
            write_at,
            cancel_requested: false,
        })
    }

    fn knows(heartbeats: &Heartbeats, number: u64) -> bool {
        heartbeats.answer(&key(number), Instant::now()).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_writes_that_overlap_or_come_to_nothing() {
        let heartbeats = Heartbeats::default();
        heartbeats.write(key(1)).keep(written(1_000));
        assert!(knows(&heartbeats, 1));
        let (one, other) = (heartbeats.write(key(1)), heartbeats.write(key(1)));
        assert!(!knows(&heartbeats, 1));
        one.keep(written(1_000));
        other.keep(written(1_000));
        assert!(!knows(&heartbeats, 1), "the order of both is not known");
        heartbeats.write(key(1)).keep(written(1_000));
        assert!(knows(&heartbeats, 1));
        drop(heartbeats.write(key(1)));
        assert!(!knows(&heartbeats, 1));
        assert!(heartbeats.lock().runs.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_needs_its_next_write_is_forgotten_and_so_is_what_is_too_much() {
        let heartbeats = Heartbeats::default();
        heartbeats.write(key(1)).keep(written(10));
        heartbeats.write(key(2)).keep(written(1_000));
        tokio::time::advance(Duration::from_millis(10)).await;
        assert!(!knows(&heartbeats, 1));
        heartbeats.write(key(3)).keep(written(500));
        assert_eq!(heartbeats.lock().runs.len(), 2);
        for number in 0..KNOWN_MAX as u64 {
            heartbeats.write(key(10 + number)).keep(written(2_000));
        }
        assert_eq!(heartbeats.lock().runs.len(), KNOWN_MAX);
        assert_eq!(heartbeats.lock().by_time.len(), KNOWN_MAX);
        assert!(!knows(&heartbeats, 2) && !knows(&heartbeats, 3));
        assert!(knows(&heartbeats, 10));
    }
}
