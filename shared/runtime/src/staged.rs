//! Tasks that were submitted from inside a run: they go on when that run has succeeded, and are discarded otherwise.
//!
//! The row of the task that ran says what became of each of its runs, so that everything here may be repeated, and no process
//! has to remember anything.

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::{EdgeKind, Event, RunEnded, RunFate, StateKind, Task, TaskAddress, Token};
use dueline_ports::{Command, StoreError};
use futures_util::{StreamExt as _, stream};

use crate::{
    Families, Follower,
    families::{EdgePages, NOTIFIED_AT_ONCE, READS_AT_ONCE, TRIES_MAX, is_being_notified},
    log_transition,
};

/// A staged task, and whether its run has succeeded.
struct Ended {
    task: TaskAddress,
    run: Token,
    succeeded: bool,
}

impl Families<'_> {
    /// Prepares a task for submits from inside its run: it is marked, unless it is already. Refused if the run has ended.
    ///
    /// The mark comes first, then the staged task and its edge, and last the look at the run. If the run ends after that
    /// look, its end finds the edge; if it ends before, the look finds that.
    pub async fn stage(&self, from: &TaskAddress, run: Token) -> Result<(), StoreError> {
        for _ in 0..TRIES_MAX {
            let found = self.store.get(&from.job, &from.id).await?;
            let marked = found.as_ref().and_then(Task::family);
            let is_marked = marked.is_some_and(|family| family.staged == Some(run));
            if found.is_some_and(|task| is_marked && task.run_fate(run) == RunFate::Open) {
                return Ok(());
            }
            let command = Command {
                job: from.job.clone(),
                id: from.id,
                event: Event::Stage { token: run },
                write: self.rng.write_id(),
            };
            // Without its effects: the state stays, so there is nothing to send.
            let mut results = self.store.apply(self.clock.now(), vec![command]).await;
            match results.pop() {
                Some(Ok(_)) => return Ok(()),
                Some(Err(StoreError::Throttled)) | None => {}
                Some(Err(error)) => return Err(error),
            }
        }
        Err(StoreError::Throttled)
    }

    /// Notifies all tasks that runs of this task have staged and that are over, or have succeeded.
    pub async fn end_runs(&self, from: &TaskAddress) -> Result<(), StoreError> {
        let mut edges = EdgePages::new(from.clone(), EdgeKind::Staged);
        while let Some(page) = edges.next(self.store).await? {
            // Read after the edges: a run that stages more of them is found to be open.
            let source = self.store.get(&from.job, &from.id).await?;
            let reads = page.into_iter().map(|edge| {
                Box::pin(async move { self.store.get(&edge.to.job, &edge.to.id).await })
            });
            let mut reads = stream::iter(reads).buffered(READS_AT_ONCE);
            let mut ended = Vec::new();
            while let Some(read) = reads.next().await {
                let Some(task) = read?.filter(|task| task.kind() == StateKind::Waiting) else {
                    continue;
                };
                let run = task.family().and_then(|family| family.open_run());
                if let Some(run) = run.filter(|run| run.task == *from)
                    && let Some(succeeded) = outcome(source.as_ref(), run.token)
                {
                    ended.push(Ended {
                        task: task.address(),
                        run: run.token,
                        succeeded,
                    });
                }
            }
            drop(reads);
            self.end_each(&ended, &mut Vec::new()).await?;
        }
        Ok(())
    }

    /// Notifies those of these tasks whose runs have ended. With a `grace`, those of which the task that ran will notify them
    /// itself are left alone.
    pub(crate) async fn end_staged(
        &self,
        followers: &[Follower],
        grace: Duration,
        moved: &mut Vec<(TaskAddress, StateKind)>,
    ) -> Result<(), StoreError> {
        let mut by_source: BTreeMap<&TaskAddress, Vec<(&TaskAddress, Token)>> = BTreeMap::new();
        for follower in followers {
            if let Some((from, run)) = &follower.run {
                let staged = by_source.entry(from).or_default();
                staged.push((&follower.task, *run));
            }
        }
        for (from, staged) in by_source {
            let source = self.store.get(&from.job, &from.id).await?;
            let now = self.clock.now();
            let is_pending = source
                .as_ref()
                .is_some_and(|task| is_being_notified(EdgeKind::Staged, task, now, grace));
            if is_pending {
                continue;
            }
            let ended = staged.into_iter().filter_map(|(task, run)| {
                let succeeded = outcome(source.as_ref(), run)?;
                let task = task.clone();
                Some(Ended {
                    task,
                    run,
                    succeeded,
                })
            });
            let ended: Vec<_> = ended.collect();
            self.end_each(&ended, moved).await?;
        }
        Ok(())
    }

    async fn end_each(
        &self,
        ended: &[Ended],
        moved: &mut Vec<(TaskAddress, StateKind)>,
    ) -> Result<(), StoreError> {
        let (mut enqueues, mut failure) = (BTreeMap::new(), None);
        for some in ended.chunks(NOTIFIED_AT_ONCE) {
            let mut commands = Vec::with_capacity(some.len());
            for one in some {
                let may_enqueue = self.may_enqueue(&one.task.job, &mut enqueues).await?;
                commands.push(Command {
                    job: one.task.job.clone(),
                    id: one.task.id,
                    event: Event::RunEnded(RunEnded {
                        run: one.run,
                        succeeded: one.succeeded,
                        token: may_enqueue.then(|| self.rng.token()),
                    }),
                    write: self.rng.write_id(),
                });
            }
            let now = self.clock.now();
            let results = self.performer.apply(self.store, now, commands).await;
            for (one, result) in some.iter().zip(results) {
                match result {
                    Ok(applied) => {
                        log_transition(Some(StateKind::Waiting), &applied.task);
                        moved.push((one.task.clone(), applied.task.kind()));
                    }
                    // It was notified before, was submitted again by a later run, or has ended for another reason.
                    Err(StoreError::Rejected(_) | StoreError::NotFound { .. }) => {}
                    // The others are notified all the same.
                    Err(error) => failure = Some(error),
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Whether a run has succeeded; `None` while it may. The runs of a task that was deleted are over.
fn outcome(source: Option<&Task>, run: Token) -> Option<bool> {
    match source.map_or(RunFate::Over, |task| task.run_fate(run)) {
        RunFate::Open => None,
        RunFate::Succeeded => Some(true),
        RunFate::Over => Some(false),
    }
}
