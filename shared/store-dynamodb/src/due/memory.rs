//! What scans remember between them: tasks that are not due yet, how far a backlog was read, empty partitions.
//!
//! All of it only saves reads. A task that is forgotten is read again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dueline_domain::{JobName, TaskId, Timestamp};

use super::CheckedTask;
use crate::{attr::Item, row::TaskRow, schema::JobPartitions};

/// Most tasks remembered.
const TASKS_MAX: usize = 200_000;
/// Most partitions of which a cursor is kept.
const CURSORS_MAX: usize = 100_000;
/// How long a due task beyond a limit is remembered as due.
const HOLD_BACK: Duration = Duration::from_secs(10);

/// A task as it was when it was checked.
#[derive(Clone, Debug)]
struct RememberedTask {
    generation: Arc<str>,
    partition: Arc<str>,
    /// The hint of its entry. Another hint means that the task was written since.
    hint: Timestamp,
    checked: CheckedTask,
    /// When the memory of this task expires.
    until: Timestamp,
}

/// How far the scans of a partition have come.
#[derive(Clone, Debug, Default)]
pub(super) struct DueCursor {
    /// Where the next chunk of a backlog begins: a long backlog is read in chunks, oldest first. `None` while there is
    /// no backlog.
    pub(super) backlog_at: Option<Item>,
    /// Where the sweep goes on, which reads the whole backlog again and again, and which no limit stops.
    pub(super) sweep_at: Option<Item>,
    /// Up to which hint the front was read: the entries whose hints pass while a backlog is read.
    pub(super) front: Option<Timestamp>,
    /// Where the reading of the front goes on, when one scan could not read all of it.
    pub(super) front_at: Option<Item>,
    /// Since when the partition has been empty.
    pub(super) empty_since: Option<Timestamp>,
    pub(super) scanned_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct DueMemoryState {
    tasks: HashMap<(JobName, TaskId), RememberedTask>,
    cursors: HashMap<String, DueCursor>,
    /// When to recheck remembered tasks of partitions with a backlog. The forward scan may have passed their entries,
    /// so it does not come across them again.
    rechecks: HashMap<Arc<str>, BTreeSet<(Timestamp, TaskId)>>,
}

/// The memory of all scans of this process.
#[derive(Debug, Default)]
pub(crate) struct DueMemory {
    state: Mutex<DueMemoryState>,
    /// Whether this process scans for due tasks. A process that does not scan remembers nothing.
    enabled: AtomicBool,
}

impl DueMemory {
    fn lock(&self) -> MutexGuard<'_, DueMemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to remember what this process writes.
    pub(super) fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    /// Forgets a task whose state is unknown now.
    pub(crate) fn forget(&self, job: &JobName, id: &TaskId) {
        if self.enabled.load(Ordering::Relaxed) {
            self.lock().tasks.remove(&(job.clone(), *id));
        }
    }

    /// Remembers a task that this process has just written, as if a scan had checked it. Its partition is no longer
    /// empty, so the next scan reads it without waiting for the idle poll.
    pub(crate) fn record_write(
        &self,
        partitions: &JobPartitions,
        row: &TaskRow,
        recheck: Duration,
    ) {
        if !self.enabled.load(Ordering::Relaxed) {
            return;
        }
        let task = &row.task;
        self.forget(&partitions.job, &task.id);
        let (Some(partition), Some(hint)) = (row.due_key(), row.hint()) else {
            return;
        };
        if let Some(cursor) = self.lock().cursors.get_mut(partition) {
            cursor.empty_since = None;
        }
        let Some(trigger_at) = task.trigger_at() else {
            return;
        };
        let checked = CheckedTask::new(task.id, task.kind(), task.priority, trigger_at);
        let until = trigger_at.min(task.changed_at.after(recheck));
        self.remember(partitions, &partition.into(), hint, checked, until);
    }

    pub(super) fn cursor(&self, partition: &str) -> DueCursor {
        self.lock()
            .cursors
            .get(partition)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn set_cursor(&self, partition: &str, cursor: DueCursor) {
        let mut state = self.lock();
        if cursor.backlog_at.is_none() {
            state.rechecks.remove(partition);
        }
        // Cursors of deleted jobs would otherwise stay forever.
        if state.cursors.len() > CURSORS_MAX {
            state.cursors.clear();
        }
        state.cursors.insert(partition.to_owned(), cursor);
    }

    /// The task as it was checked, if the memory of it is still valid.
    pub(super) fn recall(
        &self,
        partitions: &JobPartitions,
        id: &TaskId,
        hint: Timestamp,
        now: Timestamp,
    ) -> Option<CheckedTask> {
        let state = self.lock();
        let task = state.tasks.get(&(partitions.job.clone(), *id))?;
        let is_valid =
            task.generation == partitions.generation && task.hint == hint && now < task.until;
        is_valid.then_some(task.checked)
    }

    /// Remembers a checked task until a time.
    pub(super) fn remember(
        &self,
        partitions: &JobPartitions,
        partition: &Arc<str>,
        hint: Timestamp,
        checked: CheckedTask,
        until: Timestamp,
    ) {
        let mut state = self.lock();
        if state.tasks.len() >= TASKS_MAX {
            state.tasks.clear();
            state.rechecks.clear();
        }
        if state
            .cursors
            .get(&**partition)
            .is_some_and(|cursor| cursor.backlog_at.is_some())
        {
            let rechecks = state.rechecks.entry(partition.clone()).or_default();
            rechecks.insert((until, checked.id));
        }
        let remembered = RememberedTask {
            generation: partitions.generation.clone(),
            partition: partition.clone(),
            hint,
            checked,
            until,
        };
        state
            .tasks
            .insert((partitions.job.clone(), checked.id), remembered);
    }

    /// Remembers due tasks beyond a limit as due for [`HOLD_BACK`].
    pub(super) fn hold_back(
        &self,
        partitions: &JobPartitions,
        tasks: &[CheckedTask],
        now: Timestamp,
    ) {
        let mut state = self.lock();
        let state = &mut *state;
        for task in tasks {
            let key = (partitions.job.clone(), task.id);
            let Some(remembered) = state.tasks.get_mut(&key) else {
                continue;
            };
            if remembered.checked != *task || remembered.until > now {
                continue;
            }
            remembered.until = now.after(HOLD_BACK);
            if let Some(rechecks) = state.rechecks.get_mut(&remembered.partition) {
                rechecks.insert((remembered.until, task.id));
            }
        }
    }

    /// Sets the forward scan of a backlog back to tasks beyond a limit.
    pub(super) fn rewind(&self, partition: &str, backlog_at: Option<Item>) {
        if let Some(cursor) = self.lock().cursors.get_mut(partition) {
            cursor.backlog_at = backlog_at;
        }
    }

    /// Takes the tasks of a partition whose recheck time has passed, with the hints that they had.
    pub(super) fn take_rechecks(
        &self,
        partitions: &JobPartitions,
        partition: &str,
        now: Timestamp,
        max: usize,
    ) -> Vec<(TaskId, Timestamp)> {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(rechecks) = state.rechecks.get_mut(partition) else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some((until, id)) = rechecks.first().copied()
            && until <= now
        {
            rechecks.pop_first();
            let task = state.tasks.get(&(partitions.job.clone(), id));
            // A task that was remembered again since has a later recheck time.
            if let Some(task) = task.filter(|task| task.until <= until) {
                taken.push((id, task.hint));
            }
        }
        taken
    }

    /// Returns what [`DueMemory::take_rechecks`] answered, when the tasks could not be checked.
    pub(super) fn return_rechecks(
        &self,
        partition: &str,
        taken: &[(TaskId, Timestamp)],
        now: Timestamp,
    ) {
        let mut state = self.lock();
        if let Some(rechecks) = state.rechecks.get_mut(partition) {
            rechecks.extend(taken.iter().map(|(id, _)| (now, *id)));
        }
    }
}
