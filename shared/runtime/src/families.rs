//! Connects tasks that wait with those that they wait for, and tells them how these have ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use dueline_domain::{
    Effect, Event, JobName, Release, StateKind, Task, TaskAddress, TaskEnd, Timestamp,
};
use dueline_ports::{Clock, Command, Edge, EdgeQuery, Rng, Store, StoreError};
use futures_util::{StreamExt as _, stream};

use crate::{Performer, log_transition};

/// Predecessors that are read at once.
const READS_AT_ONCE: usize = 8;
/// Followers that are told with one call of the store.
const TOLD_AT_ONCE: usize = 100;
/// Edges that are read with one call of the store.
const EDGES_AT_ONCE: usize = 1_000;
/// Tries to mark a task that changes at the same time.
const TRIES_MAX: u32 = 4;
/// How long a task may owe its end to its followers before a check of such a follower counts that as lost.
const RELEASE_GRACE: Duration = Duration::from_secs(30);

/// What connecting tasks needs.
#[derive(Clone, Copy)]
pub struct Families<'a> {
    /// The tasks and their edges.
    pub store: &'a dyn Store,
    /// Wall-clock time.
    pub clock: &'a dyn Clock,
    /// Tokens and names of writes.
    pub rng: &'a dyn Rng,
    /// Does the advisory effects of the followers' transitions.
    pub performer: Performer<'a>,
}

impl fmt::Debug for Families<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Families").finish_non_exhaustive()
    }
}

/// A task that waits, with those that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    /// The task that waits.
    pub task: TaskAddress,
    /// What it waits for.
    pub open: Vec<TaskAddress>,
}

/// What connecting tasks has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The followers that have moved, with their new states.
    pub moved: Vec<(TaskAddress, StateKind)>,
    /// The tasks that were marked, so that their ends are told to their followers.
    pub marked: usize,
}

impl Families<'_> {
    /// Connects stored tasks with those that they wait for. It may be repeated at any time.
    ///
    /// The edges are stored first. After that each predecessor is marked, unless it has ended: then its followers are told at
    /// once. So whoever ends a marked predecessor finds the edges, and a predecessor that ended before it was marked is
    /// noticed here.
    pub async fn link(&self, followers: &[Follower]) -> Result<Linked, StoreError> {
        self.connect(followers, Duration::ZERO).await
    }

    /// Connects again a task that has waited for long. Ends that are being told at present are left alone, so every
    /// change is the repair of a loss.
    pub async fn check(&self, follower: Follower) -> Result<Linked, StoreError> {
        self.connect(&[follower], RELEASE_GRACE).await
    }

    async fn connect(&self, followers: &[Follower], grace: Duration) -> Result<Linked, StoreError> {
        let mut waiting: BTreeMap<TaskAddress, Vec<TaskAddress>> = BTreeMap::new();
        for follower in followers {
            for from in &follower.open {
                let to = waiting.entry(from.clone()).or_default();
                to.push(follower.task.clone());
            }
        }
        let jobs: BTreeSet<JobName> = waiting.keys().map(|from| from.job.clone()).collect();
        let mut missing = BTreeSet::new();
        for job in jobs {
            if self.store.job(&job).await?.is_none() {
                missing.insert(job);
            }
        }
        let edges = waiting.iter().flat_map(|(from, to)| {
            to.iter().map(|to| Edge {
                from: from.clone(),
                to: to.clone(),
            })
        });
        let edges: Vec<_> = edges
            .filter(|edge| !missing.contains(&edge.from.job))
            .collect();
        if !edges.is_empty() {
            self.store.put_edges(edges).await?;
        }
        let marks = waiting.keys().cloned().map(|from| {
            Box::pin(async move {
                let mark = self.mark(&from, grace).await;
                mark.map(|mark| (from, mark))
            })
        });
        let mut marks = stream::iter(marks).buffered(READS_AT_ONCE);
        let (mut linked, mut ended) = (Linked::default(), Vec::new());
        while let Some(mark) = marks.next().await {
            match mark? {
                (_, Mark::Open) => {}
                (_, Mark::Marked) => linked.marked += 1,
                (from, Mark::Ended(end)) => ended.push((from, end)),
            }
        }
        drop(marks);
        for (from, end) in ended {
            let to = waiting.remove(&from).unwrap_or_default();
            self.tell(&from, end, &to, &mut linked.moved).await?;
        }
        Ok(linked)
    }

    /// Marks a task, so that its end is told to its followers, unless it is marked already or has ended.
    async fn mark(&self, from: &TaskAddress, grace: Duration) -> Result<Mark, StoreError> {
        for _ in 0..TRIES_MAX {
            let Some(task) = self.store.get(&from.job, &from.id).await? else {
                return Ok(Mark::Ended(TaskEnd::Deleted));
            };
            if let Some(end) = TaskEnd::of(task.kind()) {
                let is_told = is_being_told(&task, self.clock.now(), grace);
                return Ok(if is_told {
                    Mark::Open
                } else {
                    Mark::Ended(end)
                });
            }
            if task.has_followers() {
                return Ok(Mark::Open);
            }
            let command = Command {
                job: from.job.clone(),
                id: from.id,
                event: Event::Follow,
                write: self.rng.write_id(),
            };
            // Without its effects: the state stays, so there is nothing to send.
            let mut results = self.store.apply(self.clock.now(), vec![command]).await;
            match results.pop() {
                Some(Ok(_)) => return Ok(Mark::Marked),
                // It has ended or was deleted meanwhile.
                Some(Err(StoreError::Rejected(_) | StoreError::NotFound { .. })) => {}
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        Err(StoreError::Throttled)
    }

    /// Tells all followers of a task how it has ended.
    pub async fn tell_all(&self, task: &Task) -> Result<(), StoreError> {
        let Some(end) = TaskEnd::of(task.kind()) else {
            return Ok(());
        };
        let (from, mut after) = (task.address(), None);
        loop {
            let query = EdgeQuery {
                from: from.clone(),
                after,
                limit: EDGES_AT_ONCE,
            };
            let page = self.store.edges(query).await?;
            self.tell(&from, end, &page.followers, &mut Vec::new())
                .await?;
            after = page.followers.last().cloned();
            if !page.more || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Tells followers of a task how it has ended, and adds those that have moved to `moved`.
    async fn tell(
        &self,
        from: &TaskAddress,
        end: TaskEnd,
        followers: &[TaskAddress],
        moved: &mut Vec<(TaskAddress, StateKind)>,
    ) -> Result<(), StoreError> {
        let (mut enqueues, mut failure) = (BTreeMap::new(), None);
        for some in followers.chunks(TOLD_AT_ONCE) {
            let mut commands = Vec::with_capacity(some.len());
            for to in some {
                if !enqueues.contains_key(&to.job) {
                    let job = self.store.job(&to.job).await?;
                    enqueues.insert(&to.job, job.is_some_and(|job| job.enqueues_at_once()));
                }
                let may_enqueue = enqueues.get(&to.job).copied().unwrap_or(false);
                commands.push(Command {
                    job: to.job.clone(),
                    id: to.id,
                    event: Event::Release(Release {
                        from: from.clone(),
                        end,
                        token: may_enqueue.then(|| self.rng.token()),
                    }),
                    write: self.rng.write_id(),
                });
            }
            let now = self.clock.now();
            let results = self.performer.apply(self.store, now, commands).await;
            for (to, result) in some.iter().zip(results) {
                match result {
                    Ok(applied) => {
                        log_transition(Some(StateKind::Waiting), &applied.task);
                        moved.push((to.clone(), applied.task.kind()));
                    }
                    // It was told before, or has ended for another reason.
                    Err(StoreError::Rejected(_) | StoreError::NotFound { .. }) => {}
                    // The others are told all the same.
                    Err(error) => failure = Some(error),
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// What a task that others are about to wait for is.
enum Mark {
    /// Its end will be told.
    Open,
    /// Its end will be told from now on.
    Marked,
    /// It has ended.
    Ended(TaskEnd),
}

/// Whether a finished task still owes its end to its followers, and has not done so for long.
fn is_being_told(task: &Task, now: Timestamp, grace: Duration) -> bool {
    let owed = task.owed.as_ref();
    let owes = owed.is_some_and(|owed| owed.effects.contains(&Effect::Release));
    owes && now.since(task.changed_at) < grace
}
