//! The indexes of the tasks of one job.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dueline_domain::{Job, Priority, StateKind, Task, TaskId, Timestamp};

/// Sorts tasks by a time, then by submit order.
pub(super) type TimeKey = (Timestamp, u64, TaskId);

/// Sorts the tasks of a lane.
pub(super) type LaneKey = (Reverse<Priority>, Timestamp, u64, TaskId);

/// The last key of a time.
pub(super) const fn end_of(time: Timestamp) -> TimeKey {
    (time, u64::MAX, TaskId::from_bytes([255; 16]))
}

/// The tasks of one job in every order that a query needs.
#[derive(Default)]
pub(super) struct JobIndex {
    /// By submit order.
    pub(super) by_seq: BTreeMap<u64, TaskId>,
    /// By idempotency key.
    pub(super) by_key: BTreeMap<Arc<str>, TaskId>,
    /// Number of tasks in each state.
    pub(super) counts: BTreeMap<StateKind, u64>,
    /// Unowned tasks by trigger time, without those in lanes.
    pub(super) pending: BTreeSet<TimeKey>,
    /// The tasks that wait in each lane, by priority and then trigger time.
    pub(super) lanes: BTreeMap<Arc<str>, BTreeSet<LaneKey>>,
    /// Owned tasks by trigger time.
    pub(super) owned: BTreeSet<TimeKey>,
    /// Finished tasks that owe an effect, by trigger time.
    pub(super) owing: BTreeSet<TimeKey>,
    /// Enqueued tasks in dispatch order.
    pub(super) ready: BTreeSet<(Reverse<Priority>, Timestamp, u64, TaskId)>,
    /// Finished tasks by the time of their end.
    pub(super) finished: BTreeSet<TimeKey>,
}

impl JobIndex {
    /// Adds a new task.
    pub(super) fn insert(&mut self, job: &Job, task: &Task, seq: u64) {
        self.by_seq.insert(seq, task.id);
        if let Some(key) = key(task) {
            self.by_key.insert(key.clone(), task.id);
        }
        self.insert_state(job, task, seq);
    }

    /// Removes a task.
    pub(super) fn remove(&mut self, task: &Task, seq: u64) {
        self.by_seq.remove(&seq);
        if let Some(key) = key(task)
            && self.by_key.get(key) == Some(&task.id)
        {
            self.by_key.remove(key);
        }
        self.remove_state(task, seq);
    }

    /// Adds a task to the indexes of its state.
    pub(super) fn insert_state(&mut self, job: &Job, task: &Task, seq: u64) {
        let kind = task.kind();
        *self.counts.entry(kind).or_default() += 1;
        if let Some(lane) = job.lane_of(task) {
            let lane = self.lanes.entry(lane.into()).or_default();
            lane.extend(lane_key(task, seq));
        } else if let Some(at) = task.trigger_at() {
            let due = match kind {
                kind if kind.is_final() => &mut self.owing,
                kind if kind.is_owned() => &mut self.owned,
                _ => &mut self.pending,
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

    /// Removes a task from the indexes of its state.
    pub(super) fn remove_state(&mut self, task: &Task, seq: u64) {
        let kind = task.kind();
        if let Some(count) = self.counts.get_mut(&kind) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&kind);
            }
        }
        if let Some(at) = task.trigger_at() {
            self.owing.remove(&(at, seq, task.id));
            self.pending.remove(&(at, seq, task.id));
            self.owned.remove(&(at, seq, task.id));
        }
        if let Some(key) = lane_key(task, seq)
            && let Some(lane) = self.lanes.get_mut(task.lane_name())
        {
            lane.remove(&key);
            if lane.is_empty() {
                self.lanes.remove(task.lane_name());
            }
        }
        self.ready.remove(&ready(task, seq));
        if let Some(at) = task.finished_at {
            self.finished.remove(&(at, seq, task.id));
        }
    }

    /// The earliest trigger time of an unowned task.
    pub(super) fn oldest_due_at(&self) -> Option<Timestamp> {
        let in_lanes = self.lanes.values().flatten().map(|(_, at, ..)| *at);
        let pending = self.pending.first().map(|(at, ..)| *at);
        pending.into_iter().chain(in_lanes).min()
    }

    /// Number of tasks that have not ended or owe an effect.
    pub(super) fn unfinished(&self) -> u64 {
        let unfinished = self.counts.iter().filter(|(kind, _)| !kind.is_final());
        unfinished.map(|(_, count)| count).sum::<u64>() + self.owing.len() as u64
    }

    /// Up to `max` finished tasks that owe an effect now, oldest first.
    pub(super) fn owed(&self, now: Timestamp, max: usize) -> impl Iterator<Item = TimeKey> {
        self.owing.range(..=end_of(now)).take(max).copied()
    }

    /// Up to `max` due tasks by priority and then oldest first, of which up to `pending_max` are unowned. Also returns
    /// whether more tasks are due than the limits allow.
    pub(super) fn due(
        &self,
        now: Timestamp,
        max: usize,
        pending_max: usize,
        rank: impl Fn(&TaskId) -> (bool, Reverse<Priority>),
    ) -> (Vec<TimeKey>, bool) {
        let order = |key: &TimeKey| (rank(&key.2), *key);
        let by_order = |keys: &BTreeSet<TimeKey>| {
            let mut due: Vec<_> = keys.range(..=end_of(now)).copied().collect();
            due.sort_by_cached_key(order);
            due
        };
        let mut due = by_order(&self.pending);
        let more_pending = pending_max > 0 && due.len() > pending_max;
        due.truncate(pending_max);
        due.extend(by_order(&self.owned));
        due.sort_by_cached_key(order);
        let more = due.len() > max || more_pending;
        due.truncate(max);
        (due, more)
    }

    /// The earliest trigger time after `now`.
    pub(super) fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        let later = |set: &BTreeSet<TimeKey>| {
            let next = set.range(end_of(now)..).next();
            next.map(|(at, ..)| *at)
        };
        later(&self.pending)
            .into_iter()
            .chain(later(&self.owned))
            .chain(later(&self.owing))
            .min()
    }
}

fn key(task: &Task) -> Option<&Arc<str>> {
    task.options
        .as_ref()
        .and_then(|options| options.key.as_ref())
}

/// Where a task is in its lane, if it has a trigger time.
fn lane_key(task: &Task, seq: u64) -> Option<LaneKey> {
    Some((Reverse(task.priority), task.trigger_at()?, seq, task.id))
}

const fn ready(task: &Task, seq: u64) -> (Reverse<Priority>, Timestamp, u64, TaskId) {
    (Reverse(task.priority), task.run_at, seq, task.id)
}
