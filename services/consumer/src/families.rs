//! Checks tasks that wait for others, from time to time: a task whose release was lost is released, and counted.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_domain::{Event, StateKind, TaskAddress, Trigger};
use dueline_ports::{Command, DueTask, StoreError};
use dueline_runtime::{Follower, Linked, Shutdown};
use tokio::sync::Notify;

use crate::Deps;

/// Most tasks that wait to be checked. The next scan finds the others again.
const WAITING_MAX: usize = 1_000;

/// The tasks that the scan has offered.
#[derive(Debug, Default)]
pub(crate) struct WaitingTasks {
    offered: Mutex<BTreeMap<TaskAddress, DueTask>>,
    more: Notify,
}

impl WaitingTasks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskAddress, DueTask>> {
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
            offered.insert(TaskAddress { job, id }, task);
        }
        drop(offered);
        self.more.notify_one();
    }
}

/// Checks what is offered until the intake is stopped.
pub(crate) async fn run(deps: Deps, waiting: Arc<WaitingTasks>, shutdown: Shutdown) {
    loop {
        let next = waiting
            .lock()
            .first_key_value()
            .map(|(_, task)| task.clone());
        let work = async {
            match next {
                Some(due) => {
                    if let Err(error) = check(&deps, &due).await {
                        tracing::warn!(
                            job.name = %due.job, task.id = %due.id, %error,
                            "failed to check a task that waits"
                        );
                    }
                    let (job, id) = (due.job, due.id);
                    waiting.lock().remove(&TaskAddress { job, id });
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
    let open = task.family().into_iter().flat_map(|family| family.open());
    let follower = Follower {
        task: task.address(),
        open: open.map(|(kind, from)| (kind, from.clone())).collect(),
    };
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
