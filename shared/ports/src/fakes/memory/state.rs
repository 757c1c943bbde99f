//! What the store holds, and the few ways in which it changes.

use std::{collections::BTreeMap, sync::Arc};

use dueline_domain::{
    Job, JobName, NewTask, Task, TaskId, Timestamp, Violation, WorkerId, apply, check_step,
    check_task,
};

use super::index::Index;
use crate::{Applied, Command, Create, Created, StoreError, WorkerRecord};

#[derive(Default)]
pub(super) struct Contents {
    pub(super) jobs: BTreeMap<JobName, Arc<Job>>,
    pub(super) tasks: BTreeMap<TaskId, Slot>,
    pub(super) indexes: BTreeMap<JobName, Index>,
    pub(super) workers: BTreeMap<WorkerId, WorkerRecord>,
    submits: u64,
}

/// A task with its place in the order of submits.
pub(super) struct Slot {
    pub(super) task: Task,
    pub(super) seq: u64,
}

impl Contents {
    pub(super) fn snapshot(&self) -> Vec<Task> {
        let mut slots: Vec<&Slot> = self.tasks.values().collect();
        slots.sort_unstable_by_key(|slot| slot.seq);
        slots.into_iter().map(|slot| slot.task.clone()).collect()
    }

    pub(super) fn job(&self, name: &JobName) -> Result<&Arc<Job>, StoreError> {
        self.jobs.get(name).ok_or_else(|| StoreError::no_job(name))
    }

    pub(super) fn task(&self, job: &JobName, id: &TaskId) -> Option<&Task> {
        let slot = self.tasks.get(id)?;
        (slot.task.job == *job).then_some(&slot.task)
    }

    pub(super) fn create(&mut self, now: Timestamp, create: Create) -> Result<Created, StoreError> {
        let Create {
            task: new,
            token,
            write,
            hand_on,
            claim_for,
        } = create;
        let job = self.job(&new.job)?.clone();
        if let Some(existing) = self.existing(&new) {
            if !existing.is_made_by(&new) {
                return Err(StoreError::Exists(existing.id));
            }
            let task = Box::new(existing.clone());
            return Ok(Created {
                task,
                existed: true,
            });
        }
        let hand_on = hand_on && job.hands_on_at_once();
        let mut task = new.into_task(&job.policy, now, token, write, hand_on);
        if let Some(worker) = claim_for {
            task.claim_at_birth(&job.policy, worker);
        }
        must_hold(check_task(&task), &task);
        self.submits += 1;
        let seq = self.submits;
        let index = self.indexes.entry(task.job.clone()).or_default();
        index.insert(&task, seq);
        let created = Box::new(task.clone());
        self.tasks.insert(task.id, Slot { task, seq });
        Ok(Created {
            task: created,
            existed: false,
        })
    }

    /// The task that already has the id or the key of `new`.
    fn existing(&self, new: &NewTask) -> Option<&Task> {
        if let Some(slot) = self.tasks.get(&new.id) {
            return Some(&slot.task);
        }
        let key = new.extras.as_ref()?.key.as_ref()?;
        let id = self.indexes.get(&new.job)?.by_key.get(key)?;
        self.tasks.get(id).map(|slot| &slot.task)
    }

    pub(super) fn apply(
        &mut self,
        now: Timestamp,
        command: &Command,
    ) -> Result<Applied, StoreError> {
        let unknown = || StoreError::no_task(&command.id);
        let slot = self.tasks.get_mut(&command.id).ok_or_else(unknown)?;
        if slot.task.job != command.job {
            return Err(unknown());
        }
        if slot.task.write == command.write {
            let task = Box::new(slot.task.clone());
            return Ok(Applied {
                task,
                repeated: true,
            });
        }
        let job = self
            .jobs
            .get(&command.job)
            .ok_or_else(|| StoreError::no_job(&command.job))?;
        let transition = apply(&slot.task, &job.policy, &command.event, command.write, now)?;
        let mut after = slot.task.clone();
        after.advance(transition);
        must_hold(check_step(&slot.task, &after), &after);
        let index = self.indexes.entry(command.job.clone()).or_default();
        index.displace(&slot.task, slot.seq);
        index.place(&after, slot.seq);
        slot.task = after;
        let task = Box::new(slot.task.clone());
        Ok(Applied {
            task,
            repeated: false,
        })
    }

    /// Removes a task from everywhere.
    pub(super) fn remove(&mut self, id: &TaskId) {
        let Some(Slot { task, seq }) = self.tasks.remove(id) else {
            return;
        };
        if let Some(index) = self.indexes.get_mut(&task.job) {
            index.remove(&task, seq);
        }
    }
}

/// An invariant that breaks in a test must end the test.
fn must_hold(checked: Result<(), Violation>, task: &Task) {
    if let Err(violation) = checked {
        panic!("task {} breaks an invariant: {violation}", task.id);
    }
}
