//! What looks remember: tasks that are not due yet, how far a long backlog was read, partitions that are empty.
//!
//! All of it only saves reads. Whatever is forgotten is looked at again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dueline_domain::{JobName, TaskId, Timestamp};

use super::Examined;
use crate::{attr::Item, row::Row, schema::Home};

/// Most tasks remembered.
const TASKS_MAX: usize = 200_000;
/// How long a due task that a limit holds back is remembered as due.
const HIDDEN_FOR: Duration = Duration::from_secs(10);

/// A task as it was when it was examined.
#[derive(Clone, Debug)]
struct Remembered {
    generation: Arc<str>,
    partition: Arc<str>,
    /// The hint of its entry; another one means that it has moved.
    hint: Timestamp,
    examined: Examined,
    /// Until then it is taken for what it was.
    until: Timestamp,
}

/// Where reading a partition stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// A long backlog is read in pieces, oldest first: where the next one begins. `None` while there is no backlog.
    pub(super) head: Option<Item>,
    /// Where the walk over the whole backlog stands, which no limit holds up.
    pub(super) sweep: Option<Item>,
    /// Up to which time new entries have been read while a backlog is.
    pub(super) front: Option<Timestamp>,
    /// Where that reading goes on, if there was more than one look can take.
    pub(super) front_at: Option<Item>,
    /// Since when there was nothing in it, as far as is known.
    pub(super) empty_since: Option<Timestamp>,
    pub(super) looked_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Known {
    tasks: HashMap<(JobName, TaskId), Remembered>,
    places: HashMap<String, Place>,
    /// Tasks to look at again although the reading may have passed their entries, while there is a backlog.
    again: HashMap<Arc<str>, BTreeSet<(Timestamp, TaskId)>>,
}

/// Everything remembered.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    known: Mutex<Known>,
    /// Whether this process looks for due tasks at all: one that does not need not remember any.
    looks: AtomicBool,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, what is written is remembered.
    pub(super) fn begin(&self) {
        self.looks.store(true, Ordering::Relaxed);
    }

    /// Forgets a task, because nobody knows what it is now.
    pub(crate) fn forget(&self, job: &JobName, id: &TaskId) {
        if self.looks.load(Ordering::Relaxed) {
            self.lock().tasks.remove(&(job.clone(), *id));
        }
    }

    /// Notes what this process has just written, which is as good as having looked. A partition that is about to have
    /// an entry is looked at again at once.
    pub(crate) fn note(&self, home: &Home, row: &Row, again: Duration) {
        if !self.looks.load(Ordering::Relaxed) {
            return;
        }
        let task = &row.task;
        self.forget(&home.job, &task.id);
        let (Some(partition), Some(hint)) = (row.due_key(), row.hint()) else {
            return;
        };
        if let Some(place) = self.lock().places.get_mut(partition) {
            place.empty_since = None;
        }
        let Some(trigger_at) = task.state.trigger_at() else {
            return;
        };
        let examined = Examined {
            trigger_at,
            id: task.id,
            kind: task.kind(),
        };
        let until = trigger_at.min(task.changed_at.after(again));
        self.remember(home, &partition.into(), hint, examined, until);
    }

    pub(super) fn place(&self, partition: &str) -> Place {
        self.lock()
            .places
            .get(partition)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn keep_place(&self, partition: &str, place: Place) {
        let mut known = self.lock();
        if place.head.is_none() {
            known.again.remove(partition);
        }
        // Jobs come and go; their places need not be kept for ever.
        if known.places.len() > 100_000 {
            known.places.clear();
        }
        known.places.insert(partition.to_owned(), place);
    }

    /// The task as it was, if that still holds.
    pub(super) fn recall(
        &self,
        home: &Home,
        id: &TaskId,
        hint: Timestamp,
        now: Timestamp,
    ) -> Option<Examined> {
        let known = self.lock();
        let task = known.tasks.get(&(home.job.clone(), *id))?;
        let holds = task.generation == home.generation && task.hint == hint && now < task.until;
        holds.then_some(task.examined)
    }

    /// Remembers a task that is not due until a time.
    pub(super) fn remember(
        &self,
        home: &Home,
        partition: &Arc<str>,
        hint: Timestamp,
        examined: Examined,
        until: Timestamp,
    ) {
        let mut known = self.lock();
        if known.tasks.len() >= TASKS_MAX {
            known.tasks.clear();
            known.again.clear();
        }
        if known
            .places
            .get(&**partition)
            .is_some_and(|place| place.head.is_some())
        {
            let again = known.again.entry(partition.clone()).or_default();
            again.insert((until, examined.id));
        }
        let remembered = Remembered {
            generation: home.generation.clone(),
            partition: partition.clone(),
            hint,
            examined,
            until,
        };
        known
            .tasks
            .insert((home.job.clone(), examined.id), remembered);
    }

    /// Remembers due tasks that nobody wants at the moment.
    pub(super) fn hide(&self, home: &Home, tasks: &[Examined], now: Timestamp) {
        let mut known = self.lock();
        let known = &mut *known;
        for task in tasks {
            let key = (home.job.clone(), task.id);
            let Some(remembered) = known.tasks.get_mut(&key) else {
                continue;
            };
            if remembered.examined != *task || remembered.until > now {
                continue;
            }
            remembered.until = now.after(HIDDEN_FOR);
            if let Some(again) = known.again.get_mut(&remembered.partition) {
                again.insert((remembered.until, task.id));
            }
        }
    }

    /// Goes back in a backlog, to what a limit held back.
    pub(super) fn go_back(&self, partition: &str, head: Option<Item>) {
        if let Some(place) = self.lock().places.get_mut(partition) {
            place.head = head;
        }
    }

    /// Takes back what [`Watch::ripe`] answered and nobody looked at.
    pub(super) fn ripen_again(
        &self,
        partition: &str,
        ripe: &[(TaskId, Timestamp)],
        now: Timestamp,
    ) {
        let mut known = self.lock();
        if let Some(again) = known.again.get_mut(partition) {
            again.extend(ripe.iter().map(|(id, _)| (now, *id)));
        }
    }

    /// Tasks of a partition whose time to be looked at again has come, with the hints they had.
    pub(super) fn ripe(
        &self,
        home: &Home,
        partition: &str,
        now: Timestamp,
        max: usize,
    ) -> Vec<(TaskId, Timestamp)> {
        let mut known = self.lock();
        let known = &mut *known;
        let Some(again) = known.again.get_mut(partition) else {
            return Vec::new();
        };
        let mut ripe = Vec::new();
        while ripe.len() < max
            && let Some((until, id)) = again.first().copied()
            && until <= now
        {
            again.pop_first();
            let task = known.tasks.get(&(home.job.clone(), id));
            // One that was remembered anew since has its place further back.
            if let Some(task) = task.filter(|task| task.until <= until) {
                ripe.push((id, task.hint));
            }
        }
        ripe
    }
}
