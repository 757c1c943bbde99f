//! The contents of the store, and the calls that change them.

use std::{collections::BTreeMap, sync::Arc};

use dueline_domain::{
    EdgeKind, Job, JobName, Meeting, NewTask, Schedule, ScheduleName, ShownTask, Task, TaskAddress,
    TaskEnd, TaskId, TaskNews, Timestamp, Violation, WorkerId, apply, check_task, check_transition,
};

use super::index::JobIndex;
use crate::{Applied, ChangeFeed, Command, Create, Created, LocalPlaces, StoreError, WorkerRecord};

#[derive(Default)]
pub(super) struct MemoryContents {
    pub(super) jobs: BTreeMap<JobName, Arc<Job>>,
    pub(super) tasks: BTreeMap<TaskId, StoredTask>,
    pub(super) indexes: BTreeMap<JobName, JobIndex>,
    pub(super) schedules: BTreeMap<JobName, BTreeMap<ScheduleName, Schedule>>,
    pub(super) workers: BTreeMap<WorkerId, WorkerRecord>,
    /// The tasks that wait for each task, and how the children among them have ended.
    pub(super) edges: BTreeMap<TaskAddress, BTreeMap<(EdgeKind, TaskAddress), Option<TaskEnd>>>,
    pub(super) places: LocalPlaces,
    /// The changes of the watched jobs.
    pub(super) feed: Arc<ChangeFeed>,
    submits: u64,
}

/// A task with its number in submit order.
pub(super) struct StoredTask {
    pub(super) task: Task,
    pub(super) seq: u64,
}

impl MemoryContents {
    pub(super) fn snapshot(&self) -> Vec<Task> {
        let mut tasks: Vec<&StoredTask> = self.tasks.values().collect();
        tasks.sort_unstable_by_key(|stored| stored.seq);
        tasks
            .into_iter()
            .map(|stored| stored.task.clone())
            .collect()
    }

    pub(super) fn job(&self, name: &JobName) -> Result<&Arc<Job>, StoreError> {
        self.jobs.get(name).ok_or_else(|| StoreError::no_job(name))
    }

    pub(super) fn task(&self, job: &JobName, id: &TaskId) -> Option<&Task> {
        let stored = self.tasks.get(id)?;
        (stored.task.job == *job).then_some(&stored.task)
    }

    pub(super) fn create(&mut self, now: Timestamp, create: Create) -> Result<Created, StoreError> {
        let Create {
            task: mut new,
            token,
            write,
            may_enqueue,
            claim_for,
        } = create;
        let job = self.job(&new.job)?.clone();
        job.admit(&mut new);
        let may_enqueue = may_enqueue && job.enqueues_at_once();
        if let Some(existing) = self.existing(&new) {
            let answer = |task: &Task, replaced| {
                Ok(Created {
                    task: Box::new(task.clone()),
                    existed: true,
                    replaced,
                })
            };
            match existing.meet(&new, now) {
                Meeting::Free => {}
                Meeting::Return => return answer(existing, false),
                Meeting::Replace => {
                    let command = Command {
                        job: new.job.clone(),
                        id: existing.id,
                        event: new.replacement(existing, now, token, may_enqueue),
                        write,
                    };
                    let applied = self.apply(now, &command)?;
                    return answer(&applied.task, true);
                }
                Meeting::Differs => return Err(StoreError::Exists(existing.id)),
                Meeting::Held => {
                    let (holder, state) = (existing.id, existing.kind());
                    return Err(StoreError::KeyHeld { holder, state });
                }
            }
        }
        let mut task = new.into_task(&job.policy, now, token, write, may_enqueue);
        if let Some(worker) = claim_for {
            task.claim_on_create(&job.policy, worker);
        }
        must_hold(check_task(&task), &task);
        self.submits += 1;
        let seq = self.submits;
        let index = self.indexes.entry(task.job.clone()).or_default();
        index.insert(&job, &task, seq);
        if self.feed.is_watched() {
            self.feed.publish([TaskNews::posted(&task)]);
        }
        let created = Box::new(task.clone());
        self.tasks.insert(task.id, StoredTask { task, seq });
        Ok(Created {
            task: created,
            existed: false,
            replaced: false,
        })
    }

    /// The task that already has the id or the key of `new`.
    fn existing(&self, new: &NewTask) -> Option<&Task> {
        if let Some(stored) = self.tasks.get(&new.id) {
            return Some(&stored.task);
        }
        let key = new.options.as_ref()?.key.as_ref()?;
        let id = self.indexes.get(&new.job)?.by_key.get(key)?;
        self.tasks.get(id).map(|stored| &stored.task)
    }

    pub(super) fn apply(
        &mut self,
        now: Timestamp,
        command: &Command,
    ) -> Result<Applied, StoreError> {
        let unknown = || StoreError::no_task(&command.id);
        let stored = self.tasks.get_mut(&command.id).ok_or_else(unknown)?;
        if stored.task.job != command.job {
            return Err(unknown());
        }
        if stored.task.write == command.write {
            let task = Box::new(stored.task.clone());
            return Ok(Applied {
                task,
                repeated: true,
            });
        }
        let job = self
            .jobs
            .get(&command.job)
            .ok_or_else(|| StoreError::no_job(&command.job))?;
        let before = &stored.task;
        let transition = apply(before, &job.policy, &command.event, command.write, now)?;
        let mut after = before.clone();
        after.advance(transition);
        job.admit_stored(&mut after);
        must_hold(check_transition(before, &after), &after);
        let index = self.indexes.entry(command.job.clone()).or_default();
        index.remove_state(before, stored.seq);
        index.insert_state(job, &after, stored.seq);
        if after.kind().is_in_flight() {
            self.places.settle(&command.job, &command.id);
        }
        if self.feed.is_watched() {
            let shown = ShownTask::of(before);
            self.feed.publish(TaskNews::since(Some(&shown), &after));
        }
        stored.task = after;
        let task = Box::new(stored.task.clone());
        Ok(Applied {
            task,
            repeated: false,
        })
    }

    /// Removes a task, also from the indexes of its job.
    pub(super) fn remove(&mut self, id: &TaskId) {
        let Some(StoredTask { task, seq }) = self.tasks.remove(id) else {
            return;
        };
        self.edges.remove(&task.address());
        if let Some(index) = self.indexes.get_mut(&task.job) {
            index.remove(&task, seq);
        }
    }
}

/// Panics when an invariant is broken, so that the test fails.
fn must_hold(checked: Result<(), Violation>, task: &Task) {
    if let Err(violation) = checked {
        panic!("task {} breaks an invariant: {violation}", task.id);
    }
}
