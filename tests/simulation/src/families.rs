//! Families in worlds: what a handler submits from inside its run, and what must hold for tasks that wait.

use std::{collections::BTreeMap, sync::Arc};

use dueline_domain::{
    EdgeKind, Family, FromRun, NewTask, RunFate, StateKind, Task, TaskAddress, TaskEnd, TaskOptions,
};
use dueline_executor::RunningTask;
use dueline_ports::{Clock, Create, Rng, Store, StoreError, TaskQueue};
use dueline_runtime::{DueSignal, EndSignal, Families, Follower, Performer};
use dueline_testkit::{Counters, EventHistory, HistoryEntry, HistoryEvent};

use crate::{TaskScript, scenario::Scenario};

/// A task goes on only when what it waits for has ended as it demands.
const ORDER: &str = "a task goes on only after what it waits for";
/// A task is cancelled only by an end that does not let it go on.
const CAUSE: &str = "a task is cancelled only for a reason that holds";

/// What a handler needs to submit tasks, as the frontend of its host does it.
#[derive(Clone)]
pub(crate) struct Stager {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<dyn TaskQueue>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) due: Arc<DueSignal>,
    pub(crate) history: EventHistory,
}

impl Stager {
    /// Submits a task from inside a run. It may be stored although an error is answered.
    pub(crate) async fn stage(&self, from: &RunningTask) -> Result<(), StoreError> {
        let ended = EndSignal::default();
        let families = Families {
            store: &*self.store,
            clock: &*self.clock,
            rng: &*self.rng,
            performer: Performer {
                queue: &*self.queue,
                due: &self.due,
                ended: &ended,
            },
        };
        let (job, id) = (from.job().clone(), from.id());
        let source = TaskAddress {
            job: job.clone(),
            id,
        };
        families.stage(&source, from.token()).await?;
        let id = Scenario::staged_id(Scenario::number_of(id), from.attempt());
        let family = Family {
            from_run: Some(FromRun {
                task: source,
                token: from.token(),
                end: None,
            }),
            ..Family::default()
        };
        let task = NewTask {
            id_is_given: true,
            options: Some(Box::new(TaskOptions {
                family: Some(Box::new(family)),
                ..TaskOptions::default()
            })),
            ..NewTask::now(id, job, TaskScript::Succeed(10).payload())
        };
        let create = Create {
            task,
            token: self.rng.token(),
            write: self.rng.write_id(),
            may_enqueue: true,
            claim_for: None,
        };
        self.history.record(HistoryEvent::SubmitSent { id });
        let created = self.store.create(self.clock.now(), vec![create]).await;
        let created = created.into_iter().next();
        let created = created.unwrap_or(Err(StoreError::Throttled))?;
        self.history.record(HistoryEvent::SubmitAcked { id });
        let task = created.task;
        let follower = Follower::of(task.address(), task.family());
        families.link(&[follower]).await.map(drop)
    }
}

/// What the history says against the rules of families.
pub(crate) fn check(entries: &[HistoryEntry], counters: &Counters) -> Vec<String> {
    let (mut latest, mut failures) = (BTreeMap::<TaskAddress, Task>::new(), Vec::new());
    for entry in entries {
        let HistoryEvent::Stored { task, .. } = &entry.event else {
            continue;
        };
        let before = latest.insert(task.address(), (**task).clone());
        let Some(family) = task.family() else {
            continue;
        };
        let waited = before.is_none_or(|before| before.kind() == StateKind::Waiting);
        let refused = task.kind() == StateKind::Cancelled && !is_by_user(task);
        if !waited || task.kind() == StateKind::Waiting {
            continue;
        }
        let causes = open_or_refused(&latest, task, family);
        if refused {
            let is_refused = |end: &Option<TaskEnd>| end.is_some();
            if !causes.iter().any(|(_, end)| is_refused(end)) {
                failures.push(format!("{CAUSE}: {} at {}", task.address(), entry.at));
            }
            counters.count(match family.from_run.is_some() {
                true => "staged task discarded",
                false => "waiting task cancelled",
            });
        } else if task.kind() != StateKind::Cancelled {
            for (what, end) in causes {
                failures.push(format!(
                    "{ORDER}: {} at {}, before {what} ({end:?})",
                    task.address(),
                    entry.at
                ));
            }
            counters.count(match family.from_run.is_some() {
                true => "staged task went on",
                false => "waiting task went on",
            });
        }
    }
    failures
}

fn is_by_user(task: &Task) -> bool {
    task.error.as_deref() == Some("changed my mind")
}

/// What a task waits for that has not ended (`None`), or not as the task demands.
fn open_or_refused(
    latest: &BTreeMap<TaskAddress, Task>,
    task: &Task,
    family: &Family,
) -> Vec<(String, Option<TaskEnd>)> {
    let mut found = Vec::new();
    let ends = family.after.iter().map(|one| {
        let end = latest.get(&one.task).and_then(Task::family_end);
        (EdgeKind::Follower, one, end)
    });
    let parent = family.parent.iter().map(|one| {
        let end = latest
            .get(&one.task)
            .and_then(|task| TaskEnd::of(task.kind()));
        (EdgeKind::Child, one, end)
    });
    for (kind, one, end) in ends.chain(parent) {
        if end.is_none_or(|end| family.refusal(kind, &one.task, end).is_some()) {
            found.push((one.task.to_string(), end));
        }
    }
    if let Some(run) = &family.from_run {
        let fate = latest
            .get(&run.task)
            .map_or(RunFate::Over, |task| task.run_fate(run.token));
        match fate {
            RunFate::Succeeded => {}
            RunFate::Open => found.push((format!("the run of {}", run.task), None)),
            RunFate::Over => {
                let end = Some(TaskEnd::Discarded);
                found.push((format!("the run of {} for {}", run.task, task.id), end));
            }
        }
    }
    found
}
