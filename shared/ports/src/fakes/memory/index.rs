//! Where the tasks of one job can be found without looking at each.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dueline_domain::{Priority, StateKind, Task, TaskId, Timestamp};

/// A task by a time, then by submit order.
pub(super) type ByTime = (Timestamp, u64, TaskId);

/// The last place of a time in [`ByTime`] order.
pub(super) const fn end_of(time: Timestamp) -> ByTime {
    (time, u64::MAX, TaskId::from_bytes([255; 16]))
}

/// Every order in which the tasks of one job are asked for.
#[derive(Default)]
pub(super) struct Index {
    /// By submit order.
    pub(super) by_seq: BTreeMap<u64, TaskId>,
    /// By idempotency key.
    pub(super) by_key: BTreeMap<Arc<str>, TaskId>,
    /// How many there are in each state.
    pub(super) counts: BTreeMap<StateKind, u64>,
    /// Unowned tasks by trigger time.
    pub(super) pending: BTreeSet<ByTime>,
    /// Owned tasks by trigger time.
    pub(super) owned: BTreeSet<ByTime>,
    /// Enqueued tasks in the order they are handed out.
    pub(super) ready: BTreeSet<(Reverse<Priority>, Timestamp, u64, TaskId)>,
    /// Finished tasks by their end.
    pub(super) finished: BTreeSet<ByTime>,
}

impl Index {
    /// Makes a new task known.
    pub(super) fn insert(&mut self, task: &Task, seq: u64) {
        self.by_seq.insert(seq, task.id);
        if let Some(key) = key(task) {
            self.by_key.insert(key.clone(), task.id);
        }
        self.place(task, seq);
    }

    /// Forgets a task.
    pub(super) fn remove(&mut self, task: &Task, seq: u64) {
        self.by_seq.remove(&seq);
        if let Some(key) = key(task) {
            self.by_key.remove(key);
        }
        self.displace(task, seq);
    }

    /// Puts a task where its state belongs.
    pub(super) fn place(&mut self, task: &Task, seq: u64) {
        let kind = task.kind();
        *self.counts.entry(kind).or_default() += 1;
        if let Some(at) = task.state.trigger_at() {
            let due = if kind.is_owned() {
                &mut self.owned
            } else {
                &mut self.pending
            };
            due.insert((at, seq, task.id));
        }
        if kind == StateKind::Enqueued {
            self.ready.insert(ready(task, seq));
        }
        if let Some(at) = task.finished_at {
            self.finished.insert((at, seq, task.id));
        }
    }

    /// Takes a task from where its state belonged.
    pub(super) fn displace(&mut self, task: &Task, seq: u64) {
        let kind = task.kind();
        if let Some(count) = self.counts.get_mut(&kind) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&kind);
            }
        }
        if let Some(at) = task.state.trigger_at() {
            self.pending.remove(&(at, seq, task.id));
            self.owned.remove(&(at, seq, task.id));
        }
        self.ready.remove(&ready(task, seq));
        if let Some(at) = task.finished_at {
            self.finished.remove(&(at, seq, task.id));
        }
    }

    /// How many tasks have not ended.
    pub(super) fn unfinished(&self) -> u64 {
        let unfinished = self.counts.iter().filter(|(kind, _)| !kind.is_final());
        unfinished.map(|(_, count)| count).sum()
    }

    /// Up to `max` due tasks, oldest first, of which up to `pending_max` are unowned; and whether the limits held
    /// any back.
    pub(super) fn due(
        &self,
        now: Timestamp,
        max: usize,
        pending_max: usize,
    ) -> (Vec<ByTime>, bool) {
        let mut pending = self.pending.range(..=end_of(now));
        let owned = self.owned.range(..=end_of(now));
        let mut due: Vec<ByTime> = pending.by_ref().take(pending_max).copied().collect();
        due.extend(owned.take(max.saturating_add(1)));
        due.sort_unstable();
        let more = due.len() > max || (pending_max > 0 && pending.next().is_some());
        due.truncate(max);
        (due, more)
    }

    /// The earliest trigger time after `now`.
    pub(super) fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        let later = |set: &BTreeSet<ByTime>| {
            let next = set.range(end_of(now)..).next();
            next.map(|(at, ..)| *at)
        };
        later(&self.pending)
            .into_iter()
            .chain(later(&self.owned))
            .min()
    }
}

fn key(task: &Task) -> Option<&Arc<str>> {
    task.extras.as_ref().and_then(|extras| extras.key.as_ref())
}

const fn ready(task: &Task, seq: u64) -> (Reverse<Priority>, Timestamp, u64, TaskId) {
    (Reverse(task.priority), task.run_at, seq, task.id)
}
