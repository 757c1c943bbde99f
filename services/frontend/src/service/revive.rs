//! Redrives: a task that has failed runs again, its parent waits for it again, and so do the followers that were cancelled
//! because of it, if that is asked for.
//!
//! Everything that waits is prepared before the redrive, or can be repeated after it: a call that was interrupted is made
//! again, and does what is missing.

use std::collections::{BTreeSet, VecDeque};

use dueline_api::{ApiError, Call, ErrorKind, ErrorReason, operation::Redrive};
use dueline_domain::{
    Children, EdgeKind, Effect, Event, Revive, StateKind, Task, TaskAddress, TaskEnd, limits,
};
use dueline_ports::{Command, Edge, EdgeQuery, StoreError};
use dueline_runtime::{Follower, log_transition};
use futures_util::{StreamExt as _, stream};

use super::{Inner, Serve};

/// Most tasks that are gone through.
const TASKS_MAX: usize = 20_000;
/// Edges that are read at once.
const EDGES_AT_ONCE: usize = 1_000;
/// Tasks that are read at once.
const READS_AT_ONCE: usize = 8;
/// Tasks that are changed with one call of the store.
const CHANGES_AT_ONCE: usize = 100;

impl Serve for Redrive {
    async fn serve(self, inner: &Inner, _: &Call) -> Result<Task, ApiError> {
        let (job, id) = (self.job, self.id);
        let found = inner.deps.store.get(&job, &id).await?;
        let Some(task) = found.filter(|task| task.family().is_some()) else {
            return inner.apply(job, id, Event::Redrive).await;
        };
        let redrives = matches!(task.kind(), StateKind::Failed | StateKind::Trashed);
        let has_ended = task.kind().is_final() && task.kind() != StateKind::Succeeded;
        if !redrives && (has_ended || !self.with_followers) {
            // The refusal.
            return inner.apply(job, id, Event::Redrive).await;
        }
        let cancelled = match self.with_followers {
            true => inner.cancelled_by(&task, redrives).await?,
            false => Vec::new(),
        };
        if redrives {
            inner.reopen_parents(&task).await?;
            let redriven = inner.apply(job.clone(), id, Event::Redrive).await?;
            if owes_family(&task) {
                // The parent may have been notified of the old end just now.
                inner.reopen_parents(&redriven).await?;
            }
        }
        for some in cancelled.chunks(CHANGES_AT_ONCE) {
            inner.revive(some).await?;
        }
        inner.task(&job, &id).await
    }
}

/// Whether the members of its family may not know how the task has ended.
fn owes_family(task: &Task) -> bool {
    let owed = task.owed.as_ref();
    owed.is_some_and(|owed| {
        let mut effects = owed.effects.iter();
        effects.any(|effect| !matches!(effect, Effect::Deliver | Effect::Close))
    })
}

/// A task that was cancelled because another one had ended.
struct Cancelled {
    task: Task,
    cause: Revive,
}

impl Inner {
    /// The tasks that were cancelled because this one had ended, or one of those, in the order in which they are brought
    /// back. Nothing is changed yet.
    async fn cancelled_by(&self, task: &Task, redrives: bool) -> Result<Vec<Cancelled>, ApiError> {
        check_notified(task)?;
        let (mut cancelled, mut visited) = (Vec::new(), BTreeSet::new());
        let mut left: VecDeque<(EdgeKind, TaskAddress)> = VecDeque::new();
        // Those that wait for one that will end otherwise, or that has done so.
        let is_cause =
            |end: Option<TaskEnd>| redrives || matches!(end, None | Some(TaskEnd::Succeeded));
        for (kind, end) in [
            (EdgeKind::Child, TaskEnd::of(task.kind())),
            (EdgeKind::Follower, task.family_end()),
        ] {
            if is_cause(end) {
                left.push_back((kind, task.address()));
            }
        }
        for above in self.parents(task).await? {
            if is_cause(above.family_end()) {
                left.push_back((EdgeKind::Follower, above.address()));
            }
        }
        while let Some((kind, from)) = left.pop_front() {
            if !visited.insert((kind, from.clone())) {
                continue;
            }
            let mut query = Some(EdgeQuery {
                from: from.clone(),
                kind,
                after: None,
                limit: EDGES_AT_ONCE,
            });
            while let Some(asked) = query.take() {
                let page = self.deps.store.edges(asked.clone()).await?;
                let last = page.edges.last().filter(|_| page.more);
                query = last.map(|last| EdgeQuery {
                    after: Some(last.to.clone()),
                    ..asked
                });
                let to = page.edges.into_iter().map(|edge| edge.to);
                for found in self.read_tasks(to.collect()).await? {
                    let is_cancelled = found.was_cancelled_by(kind, &from);
                    if !is_cancelled && found.kind().is_final() {
                        continue;
                    }
                    if cancelled.len() + visited.len() >= TASKS_MAX {
                        let message = format!(
                            "more than {TASKS_MAX} tasks wait for it; redrive without followers, and those in parts"
                        );
                        let reason = ErrorReason::FamilyTooLarge;
                        return Err(ApiError::new(ErrorKind::Conflict, reason, message));
                    }
                    // One that waits already may have been brought back by an earlier call, without those below it.
                    let address = found.address();
                    if found.children() != Children::None {
                        left.push_back((EdgeKind::Child, address.clone()));
                    }
                    if found.has_followers() {
                        left.push_back((EdgeKind::Follower, address));
                    }
                    if is_cancelled {
                        check_notified(&found)?;
                        let above = self.parents(&found).await?;
                        let above = above.iter().filter(|task| task.has_followers());
                        left.extend(above.map(|task| (EdgeKind::Follower, task.address())));
                        cancelled.push(Cancelled {
                            task: found,
                            cause: Revive {
                                kind,
                                from: from.clone(),
                            },
                        });
                    }
                }
            }
        }
        Ok(cancelled)
    }

    /// The tasks above a child whose own runs have succeeded, the nearest first.
    async fn parents(&self, child: &Task) -> Result<Vec<Task>, ApiError> {
        let (mut above, mut next) = (Vec::new(), parent_of(child));
        while let Some(parent) = next.take() {
            let found = self.deps.store.get(&parent.job, &parent.id).await?;
            let found = found.filter(|task| task.kind() == StateKind::Succeeded);
            let Some(found) = found.filter(|_| above.len() <= limits().depth_max as usize) else {
                break;
            };
            next = parent_of(&found);
            above.push(found);
        }
        Ok(above)
    }

    /// Lets the parent of a task that has ended wait for it again, and the parents above.
    pub(super) async fn reopen_parents(&self, child: &Task) -> Result<(), ApiError> {
        let (mut child, mut next) = (child.address(), parent_of(child));
        while let Some(parent) = next.take() {
            // First the edge, so that the parent is not closed once more before it.
            let edge = Edge {
                from: parent.clone(),
                kind: EdgeKind::Child,
                to: child,
            };
            match self.deps.store.reopen_edge(edge).await {
                // The job of the parent was deleted.
                Err(StoreError::NotFound { .. }) => break,
                result => result?,
            }
            let command = Command {
                job: parent.job.clone(),
                id: parent.id,
                event: Event::Reopen,
                write: self.deps.rng.write_id(),
            };
            let now = self.deps.clock.now();
            let mut results = self.deps.store.apply(now, vec![command]).await;
            match results.pop() {
                Some(Ok(applied)) => next = parent_of(&applied.task),
                // It has children that are open, so those above wait for it already; or it was deleted.
                None | Some(Err(StoreError::Rejected(_) | StoreError::NotFound { .. })) => {}
                Some(Err(error)) => return Err(error.into()),
            }
            child = parent;
        }
        Ok(())
    }

    /// Lets cancelled tasks wait again, and connects them with what they wait for.
    async fn revive(&self, cancelled: &[Cancelled]) -> Result<(), ApiError> {
        let deps = &self.deps;
        for one in cancelled {
            self.reopen_parents(&one.task).await?;
        }
        let commands = cancelled.iter().map(|one| Command {
            job: one.task.job.clone(),
            id: one.task.id,
            event: Event::Revive(one.cause.clone()),
            write: deps.rng.write_id(),
        });
        let now = deps.clock.now();
        let commands = commands.collect();
        let results = deps.effects().apply(&*deps.store, now, commands).await;
        let mut followers = Vec::new();
        for result in results {
            match result {
                Ok(applied) => {
                    log_transition(Some(StateKind::Cancelled), &applied.task);
                    let task = &applied.task;
                    followers.push(Follower::of(task.address(), task.family()));
                }
                // It was brought back by another call, or deleted.
                Err(StoreError::Rejected(_) | StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Some of what they wait for may have ended.
        deps.families().link(&followers).await?;
        Ok(())
    }

    async fn read_tasks(&self, tasks: Vec<TaskAddress>) -> Result<Vec<Task>, ApiError> {
        let reads = tasks
            .into_iter()
            .map(|task| Box::pin(async move { self.deps.store.get(&task.job, &task.id).await }));
        let reads: Vec<_> = stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
        let found = reads.into_iter().filter_map(Result::transpose);
        let found: Result<_, StoreError> = found.collect();
        found.map_err(ApiError::from)
    }
}

fn parent_of(task: &Task) -> Option<TaskAddress> {
    let family = task.family();
    family.and_then(|family| Some(family.parent.as_ref()?.task.clone()))
}

/// Refuses to bring back what a notification, which is on its way, would cancel at once.
pub(super) fn check_notified(task: &Task) -> Result<(), ApiError> {
    if owes_family(task) {
        let address = task.address();
        let message = format!("task {address} has just ended; repeat this when its followers know");
        return Err(ApiError::unavailable(message));
    }
    Ok(())
}
