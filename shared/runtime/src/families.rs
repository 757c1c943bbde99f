//! Connects tasks that wait with those that they wait for, and notifies them how these have ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use dueline_domain::{
    Children, Close, EdgeKind, Effect, Event, Family, JobName, Release, StateKind, Task,
    TaskAddress, TaskEnd, Timestamp, Token,
};
use dueline_ports::{Clock, Command, Edge, EdgeQuery, Rng, Store, StoreError, StoredEdge};
use futures_util::{StreamExt as _, stream};

use crate::{Performer, log_transition};

/// Predecessors that are read at once.
pub(crate) const READS_AT_ONCE: usize = 8;
/// Followers that are notified with one call of the store.
pub(crate) const NOTIFIED_AT_ONCE: usize = 100;
/// Edges that are read with one call of the store.
const EDGES_AT_ONCE: usize = 1_000;
/// Children that are checked at once.
const CHECKED_AT_ONCE: usize = 1_000;
/// Tries to mark a task that changes at the same time.
pub(crate) const TRIES_MAX: u32 = 4;
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
    /// What it waits for, and why.
    pub open: Vec<(EdgeKind, TaskAddress)>,
    /// The run from inside which it was submitted, if the task waits for that, too.
    pub run: Option<(TaskAddress, Token)>,
}

impl Follower {
    /// A task with what it does not know to have ended.
    pub fn of(task: TaskAddress, family: Option<&Family>) -> Self {
        let open = family.into_iter().flat_map(Family::open);
        let run = family.and_then(Family::open_run);
        Self {
            task,
            open: open.map(|(kind, from)| (kind, from.clone())).collect(),
            run: run.map(|run| (run.task.clone(), run.token)),
        }
    }
}

/// What connecting tasks has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The followers that have moved, with their new states.
    pub moved: Vec<(TaskAddress, StateKind)>,
    /// The tasks that were marked, so that their followers are notified of their ends.
    pub marked: usize,
}

impl Families<'_> {
    /// Connects stored tasks with those that they wait for. It may be repeated at any time.
    ///
    /// The edges are stored first. After that each predecessor is marked, unless it has ended: then its followers are notified at
    /// once. So the end of a marked predecessor finds the edges, and a predecessor that ended before it was marked is
    /// noticed here.
    pub async fn link(&self, followers: &[Follower]) -> Result<Linked, StoreError> {
        self.connect(followers, Duration::ZERO).await
    }

    /// Connects again a task that has waited for long. Notifications that are on their way are left alone, so every
    /// change is the repair of a loss.
    pub async fn check(&self, follower: Follower) -> Result<Linked, StoreError> {
        self.connect(&[follower], RELEASE_GRACE).await
    }

    async fn connect(&self, followers: &[Follower], grace: Duration) -> Result<Linked, StoreError> {
        let mut waiting: BTreeMap<(EdgeKind, TaskAddress), Vec<TaskAddress>> = BTreeMap::new();
        for follower in followers {
            for open in &follower.open {
                let to = waiting.entry(open.clone()).or_default();
                to.push(follower.task.clone());
            }
        }
        let staged = followers.iter().filter_map(|follower| {
            let (from, _) = follower.run.as_ref()?;
            Some(Edge {
                from: from.clone(),
                kind: EdgeKind::Staged,
                to: follower.task.clone(),
            })
        });
        let staged: Vec<_> = staged.collect();
        let jobs = waiting.keys().map(|(_, from)| from);
        let jobs = jobs.chain(staged.iter().map(|edge| &edge.from));
        let jobs: BTreeSet<JobName> = jobs.map(|from| from.job.clone()).collect();
        let mut missing = BTreeSet::new();
        for job in jobs {
            if self.store.job(&job).await?.is_none() {
                missing.insert(job);
            }
        }
        let edges = waiting.iter().flat_map(|((kind, from), to)| {
            to.iter().map(|to| Edge {
                from: from.clone(),
                kind: *kind,
                to: to.clone(),
            })
        });
        let edges: Vec<_> = edges
            .chain(staged)
            .filter(|edge| !missing.contains(&edge.from.job))
            .collect();
        if !edges.is_empty() {
            self.store.put_edges(edges).await?;
        }
        let marks = waiting.keys().cloned().map(|(kind, from)| {
            Box::pin(async move {
                let mark = self.mark(kind, &from, grace).await;
                mark.map(|mark| ((kind, from), mark))
            })
        });
        let mut marks = stream::iter(marks).buffered(READS_AT_ONCE);
        let (mut linked, mut ended) = (Linked::default(), Vec::new());
        while let Some(mark) = marks.next().await {
            match mark? {
                (_, Mark::Open) => {}
                (_, Mark::Marked) => linked.marked += 1,
                (from, Mark::Ended(end)) => ended.push((from, end)),
                (from, Mark::MarkedAndEnded(end)) => {
                    linked.marked += 1;
                    ended.push((from, end));
                }
            }
        }
        drop(marks);
        for (from, end) in ended {
            let to = waiting.remove(&from).unwrap_or_default();
            let (kind, from) = &from;
            self.notify(*kind, from, end, &to, &mut linked.moved)
                .await?;
        }
        self.end_staged(followers, grace, &mut linked.moved).await?;
        Ok(linked)
    }

    /// Marks a task, so that those that wait for it are notified of its end, unless it is marked already or has ended. For its
    /// children, the end is that of its own run.
    async fn mark(
        &self,
        kind: EdgeKind,
        from: &TaskAddress,
        grace: Duration,
    ) -> Result<Mark, StoreError> {
        for _ in 0..TRIES_MAX {
            let Some(task) = self.store.get(&from.job, &from.id).await? else {
                return Ok(Mark::Ended(TaskEnd::Deleted));
            };
            let (end, is_marked) = match kind {
                EdgeKind::Follower => (task.family_end(), task.has_followers()),
                EdgeKind::Child => {
                    let is_marked = task.children() == Children::Open;
                    (TaskEnd::of(task.kind()), is_marked)
                }
                // A run is marked before its tasks are stored.
                EdgeKind::Staged => return Ok(Mark::Open),
            };
            // A parent whose run is over may still get children, as long as its family is not closed.
            if is_marked || (end.is_some() && !task.is_open_family()) {
                let is_pending = is_being_notified(kind, &task, self.clock.now(), grace);
                return Ok(end.filter(|_| !is_pending).map_or(Mark::Open, Mark::Ended));
            }
            let command = Command {
                job: from.job.clone(),
                id: from.id,
                event: Event::Follow(kind),
                write: self.rng.write_id(),
            };
            // Without its effects: the state stays, so there is nothing to send.
            let mut results = self.store.apply(self.clock.now(), vec![command]).await;
            match results.pop() {
                Some(Ok(_)) => return Ok(end.map_or(Mark::Marked, Mark::MarkedAndEnded)),
                // It has ended or was deleted meanwhile.
                Some(Err(StoreError::Rejected(_) | StoreError::NotFound { .. })) => {}
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        Err(StoreError::Throttled)
    }

    /// Notifies all children of a task that its own run is over, or all its followers how it and its children have ended.
    pub async fn notify_all(&self, kind: EdgeKind, task: &Task) -> Result<(), StoreError> {
        let end = match kind {
            EdgeKind::Follower => task.family_end(),
            EdgeKind::Child => TaskEnd::of(task.kind()),
            EdgeKind::Staged => return self.end_runs(&task.address()).await,
        };
        let Some(end) = end else {
            return Ok(());
        };
        let from = task.address();
        let mut edges = EdgePages::new(from.clone(), kind);
        while let Some(page) = edges.next(self.store).await? {
            let open = page.into_iter().filter(|edge| edge.end.is_none());
            let open: Vec<_> = open.map(|edge| edge.to).collect();
            self.notify(kind, &from, end, &open, &mut Vec::new())
                .await?;
        }
        Ok(())
    }

    /// Records at the parent of a task that the task and its children have ended, and closes the parent's family if it was
    /// the last.
    pub async fn leave(&self, task: &Task) -> Result<(), StoreError> {
        let parent = task.family().and_then(|family| family.parent.as_ref());
        let (Some(parent), Some(end)) = (parent, task.family_end()) else {
            return Ok(());
        };
        let edge = Edge {
            from: parent.task.clone(),
            kind: EdgeKind::Child,
            to: task.address(),
        };
        match self.store.end_edge(edge, end).await {
            // The job of the parent was deleted.
            Err(StoreError::NotFound { .. }) => return Ok(()),
            result => result?,
        }
        self.close(&parent.task).await.map(drop)
    }

    /// Closes the family of a task if its own run and all its children have ended. Answers the task as it is then, and whether
    /// this call has closed it.
    ///
    /// The mark `closing` is set first, and the children are read once more after it. A process that adds a child
    /// stores its edge first, and removes the mark if it finds it: so either the edge is found here, or the mark is gone.
    pub async fn close(&self, parent: &TaskAddress) -> Result<(Option<Task>, bool), StoreError> {
        for _ in 0..TRIES_MAX {
            let Some(task) = self.store.get(&parent.job, &parent.id).await? else {
                return Ok((None, false));
            };
            let is_open = async || {
                let open = self.store.open_children(parent, 1).await?;
                Ok::<_, StoreError>(!open.is_empty())
            };
            if !task.is_open_family() || is_open().await? {
                return Ok((Some(task), false));
            }
            let failed = match task.children() {
                Children::Closing => Some(self.count_failed(parent).await?),
                _ => None,
            };
            let seen = task.write;
            let command = Command {
                job: parent.job.clone(),
                id: parent.id,
                event: Event::Close(Close { seen, failed }),
                write: self.rng.write_id(),
            };
            let (store, now) = (self.store, self.clock.now());
            let mut results = self.performer.apply(store, now, vec![command]).await;
            match results.pop() {
                Some(Ok(applied)) if failed.is_some() => {
                    return Ok((Some(*applied.task), true));
                }
                // The mark is set, or the task has changed meanwhile: it is read again, and then its children.
                Some(Ok(_) | Err(StoreError::Rejected(_))) => {}
                Some(Err(StoreError::NotFound { .. })) => return Ok((None, false)),
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        Err(StoreError::Throttled)
    }

    /// Looks for children that have ended without a notification of their parent, and records their ends. Notifications
    /// that are on their way are left alone, so each end is the repair of a loss. Answers how many there were.
    pub async fn check_children(&self, parent: &TaskAddress) -> Result<usize, StoreError> {
        let open = self.store.open_children(parent, CHECKED_AT_ONCE).await?;
        let reads = open.into_iter().map(|child| {
            Box::pin(async move {
                let found = self.store.get(&child.job, &child.id).await;
                found.map(|found| (child, found))
            })
        });
        let mut reads = stream::iter(reads).buffered(READS_AT_ONCE);
        let (mut repaired, now) = (0, self.clock.now());
        while let Some(read) = reads.next().await {
            let (child, found) = read?;
            let end = match &found {
                None => Some(TaskEnd::Deleted),
                Some(task) if is_owed(Effect::Leave, task, now, RELEASE_GRACE) => None,
                Some(task) => task.family_end(),
            };
            let Some(end) = end else {
                continue;
            };
            let edge = Edge {
                from: parent.clone(),
                kind: EdgeKind::Child,
                to: child,
            };
            self.store.end_edge(edge, end).await?;
            repaired += 1;
        }
        Ok(repaired)
    }

    /// How many children did not succeed.
    async fn count_failed(&self, parent: &TaskAddress) -> Result<u32, StoreError> {
        let (mut failed, mut edges) = (0, EdgePages::new(parent.clone(), EdgeKind::Child));
        while let Some(page) = edges.next(self.store).await? {
            let ends = page.iter().filter_map(|edge| edge.end);
            // A child that was discarded is as if it had never been submitted.
            let fails = |end: &TaskEnd| !matches!(end, TaskEnd::Succeeded | TaskEnd::Discarded);
            failed += ends.filter(fails).count();
        }
        Ok(u32::try_from(failed).unwrap_or(u32::MAX))
    }

    /// Whether tasks of a job that go on may be enqueued at once. Each job is read once.
    pub(crate) async fn may_enqueue(
        &self,
        job: &JobName,
        known: &mut BTreeMap<JobName, bool>,
    ) -> Result<bool, StoreError> {
        if let Some(may) = known.get(job) {
            return Ok(*may);
        }
        let found = self.store.job(job).await?;
        let may = found.is_some_and(|found| found.enqueues_at_once());
        known.insert(job.clone(), may);
        Ok(may)
    }

    /// Notifies followers of a task how it has ended, and adds those that have moved to `moved`.
    async fn notify(
        &self,
        kind: EdgeKind,
        from: &TaskAddress,
        end: TaskEnd,
        followers: &[TaskAddress],
        moved: &mut Vec<(TaskAddress, StateKind)>,
    ) -> Result<(), StoreError> {
        let (mut enqueues, mut failure) = (BTreeMap::new(), None);
        for some in followers.chunks(NOTIFIED_AT_ONCE) {
            let mut commands = Vec::with_capacity(some.len());
            for to in some {
                let may_enqueue = self.may_enqueue(&to.job, &mut enqueues).await?;
                commands.push(Command {
                    job: to.job.clone(),
                    id: to.id,
                    event: Event::Release(Release {
                        kind,
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
                    // It was notified before, or has ended for another reason.
                    Err(StoreError::Rejected(_) | StoreError::NotFound { .. }) => {}
                    // The others are notified all the same.
                    Err(error) => failure = Some(error),
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// What a task that others are about to wait for is.
enum Mark {
    /// Its end will cause notifications.
    Open,
    /// Its end will cause notifications from now on.
    Marked,
    /// It has ended.
    Ended(TaskEnd),
    /// Its own run has ended, and it knows now that it has children.
    MarkedAndEnded(TaskEnd),
}

/// Reads the edges of a task page by page.
pub(crate) struct EdgePages {
    query: Option<EdgeQuery>,
}

impl EdgePages {
    pub(crate) const fn new(from: TaskAddress, kind: EdgeKind) -> Self {
        let query = Some(EdgeQuery {
            from,
            kind,
            after: None,
            limit: EDGES_AT_ONCE,
        });
        Self { query }
    }

    pub(crate) async fn next(
        &mut self,
        store: &dyn Store,
    ) -> Result<Option<Vec<StoredEdge>>, StoreError> {
        let Some(query) = self.query.take() else {
            return Ok(None);
        };
        let page = store.edges(query.clone()).await?;
        let last = page.edges.last().filter(|_| page.more);
        self.query = last.map(|last| EdgeQuery {
            after: Some(last.to.clone()),
            ..query
        });
        Ok(Some(page.edges))
    }
}

/// Whether a finished task still owes its end to those that wait for it, and has not done so for long.
pub(crate) fn is_being_notified(
    kind: EdgeKind,
    task: &Task,
    now: Timestamp,
    grace: Duration,
) -> bool {
    let effect = match kind {
        EdgeKind::Follower => Effect::Release,
        EdgeKind::Child => Effect::Children,
        EdgeKind::Staged => Effect::Staged,
    };
    is_owed(effect, task, now, grace)
}

/// Whether a finished task owes an effect, and has not done so for long.
fn is_owed(effect: Effect, task: &Task, now: Timestamp, grace: Duration) -> bool {
    let owed = task.owed.as_ref();
    let owes = owed.is_some_and(|owed| owed.effects.contains(&effect));
    owes && now.since(task.changed_at) < grace
}
