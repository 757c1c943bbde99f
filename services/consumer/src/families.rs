//! Checks tasks that wait for others, from time to time: a task whose release was lost is released, and counted.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_domain::{Event, StateKind, Task, TaskAddress, Trigger};
use dueline_ports::{Command, DueTask, StoreError};
use dueline_runtime::{Follower, Linked, Shutdown};
use tokio::sync::Notify;

use crate::Deps;

/// Most tasks that wait to be checked. The next scan finds the others again.
const WAITING_MAX: usize = 1_000;

/// What the scan has offered: tasks whose check is due, and (`None`) tasks of which a run has ended that may have staged
/// others.
#[derive(Debug, Default)]
pub(crate) struct WaitingTasks {
    offered: Mutex<BTreeMap<TaskAddress, Option<DueTask>>>,
    more: Notify,
}

impl WaitingTasks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskAddress, Option<DueTask>>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers tasks whose check is due.
    pub(crate) fn offer(&self, tasks: Vec<DueTask>) {
        if tasks.is_empty() {
            return;
        }
        let mut offered = self.lock();
        for task in tasks {
            if offered.len() >= WAITING_MAX {
                break;
            }
            let (job, id) = (task.job.clone(), task.id);
            offered.insert(TaskAddress { job, id }, Some(task));
        }
        drop(offered);
        self.more.notify_one();
    }

    /// Offers a task of which a run was lost. What it has staged is discarded.
    pub(crate) fn offer_lost(&self, task: &Task) {
        let mut offered = self.lock();
        if offered.len() < WAITING_MAX {
            offered.insert(task.address(), None);
        }
        drop(offered);
        self.more.notify_one();
    }
}

/// Checks what is offered until the intake is stopped.
pub(crate) async fn run(deps: Deps, waiting: Arc<WaitingTasks>, shutdown: Shutdown) {
    loop {
        let next = waiting.lock().pop_first();
        let work = async {
            match next {
                Some((task, due)) => {
                    let checked = match due {
                        Some(due) => check(&deps, &due).await,
                        None => deps.families().end_runs(&task).await,
                    };
                    if let Err(error) = checked {
                        tracing::warn!(
                            job.name = %task.job, task.id = %task.id, %error,
                            "failed to check a task of a family"
                        );
                    }
                }
                None => waiting.more.notified().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            () = work => {}
        }
    }
}

/// Connects a task with what it waits for once more, and lets it wait on until its next check.
async fn check(deps: &Deps, due: &DueTask) -> Result<(), StoreError> {
    let Some(task) = deps.store.get(&due.job, &due.id).await? else {
        return Ok(());
    };
    if task.kind() != StateKind::Waiting || task.trigger_at() != Some(due.trigger_at) {
        return Ok(());
    }
    let follower = Follower::of(task.address(), task.family());
    let Linked { moved, marked } = deps.families().check(follower).await?;
    let repairs = moved.len() + marked;
    if repairs > 0 {
        tracing::warn!(
            job.name = %task.job, task.id = %task.id, repairs,
            "a task waited in vain: what it waits for was not connected with it"
        );
        metrics::counter!("dueline_family_repairs_total").increment(repairs as u64);
    }
    let command = Command {
        job: due.job.clone(),
        id: due.id,
        event: Event::Trigger(Trigger {
            seen: due.kind,
            seen_at: due.trigger_at,
            token: deps.rng.token(),
            jitter: deps.rng.jitter(),
        }),
        write: deps.rng.write_id(),
    };
    let now = deps.clock.now();
    let mut results = deps.effects().apply(&*deps.store, now, vec![command]).await;
    match results.pop() {
        // It goes on, and waits no longer.
        None | Some(Ok(_) | Err(StoreError::Rejected(_) | StoreError::NotFound { .. })) => Ok(()),
        Some(Err(error)) => Err(error),
    }
}
