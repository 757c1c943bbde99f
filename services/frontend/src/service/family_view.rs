//! The family of a task as one thing: shown page by page, or cancelled whole.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use dueline_api::{
    ApiError, Call, ErrorKind, ErrorReason,
    operation::{FamilyMember, FamilyPage, GetFamily, PathStep},
};
use dueline_domain::{
    Children, EdgeKind, Event, RunningCancel, StateKind, Task, TaskAddress, truncate_text,
};
use dueline_ports::{Command, EdgeQuery, StoreError};
use dueline_runtime::log_transition;
use futures_util::{StreamExt as _, stream};

use super::{
    Inner, Serve,
    critical_path::{Times, critical_path},
};

/// Most members that are gone through.
const MEMBERS_MAX: usize = 20_000;
/// Members that are read ahead.
const READ_AHEAD: usize = 64;
/// Members that are read at once.
const READS_AT_ONCE: usize = 8;
/// Edges that are read at once.
const EDGES_AT_ONCE: usize = 1_000;
/// Members that are cancelled with one call of the store.
const CANCELS_AT_ONCE: usize = 100;
/// Longest error text of a member.
const ERROR_BYTES_MAX: usize = 200;

impl Serve for GetFamily {
    /// Each page goes through the family from its beginning: it changes while it is shown, so that a place in it means
    /// nothing but a number.
    async fn serve(self, inner: &Inner, _: &Call) -> Result<FamilyPage, ApiError> {
        let skip = match self.cursor.as_deref().map(str::parse::<usize>) {
            None => 0,
            Some(Ok(skip)) if skip <= MEMBERS_MAX => skip,
            Some(_) => {
                let message = "is not from this service";
                return Err(ApiError::invalid(
                    "cursor",
                    ErrorReason::InvalidCursor,
                    message,
                ));
            }
        };
        let root = inner.task(&self.job, &self.id).await?.address();
        let wanted = skip.saturating_add(self.limit);
        let wanted = wanted.min(MEMBERS_MAX);
        let needed = match self.critical_path {
            true => MEMBERS_MAX,
            false => wanted,
        };
        let (mut members, mut more) = inner.members(root, needed).await?;
        let critical_path = match self.critical_path {
            true => inner.critical_path(&members),
            false => Vec::new(),
        };
        if members.len() > wanted {
            members.truncate(wanted);
            more = true;
        }
        let next = more.then(|| Arc::from(members.len().to_string()));
        let members = members.into_iter().skip(skip);
        Ok(FamilyPage {
            members: members.map(|member| member.shown).collect(),
            next,
            critical_path,
        })
    }
}

/// A place in a family that has not been visited.
struct Place {
    task: TaskAddress,
    level: u32,
    above: Option<(EdgeKind, TaskAddress)>,
}

/// A member with its times; these are absent if it was deleted.
struct Member {
    shown: FamilyMember,
    times: Option<Times>,
}

/// What is known of a member.
struct Seen {
    times: Times,
    state: StateKind,
    name: Option<Arc<str>>,
    error: Option<Arc<str>>,
    children: Children,
    has_followers: bool,
    has_staged: bool,
}

impl Seen {
    fn of(task: &Task) -> Self {
        let options = task.options.as_ref();
        let error = task.error.as_deref();
        Self {
            times: Times::of(task),
            state: task.kind(),
            name: options.and_then(|options| options.name.clone()),
            error: error.map(|error| Arc::from(truncate_text(error, ERROR_BYTES_MAX))),
            children: task.children(),
            has_followers: task.has_followers(),
            has_staged: task.has_staged(),
        }
    }
}

impl Inner {
    /// Up to `max` members of a family, each right below what it waits for, and whether there are more.
    async fn members(
        &self,
        root: TaskAddress,
        max: usize,
    ) -> Result<(Vec<Member>, bool), ApiError> {
        let (mut members, mut visited) = (Vec::new(), BTreeSet::new());
        let mut seen: HashMap<TaskAddress, Option<Seen>> = HashMap::new();
        let mut left = vec![Place {
            task: root,
            level: 0,
            above: None,
        }];
        while let Some(place) = left.pop() {
            if !visited.insert(place.task.clone()) {
                continue;
            }
            if members.len() >= max {
                return Ok((members, true));
            }
            if !seen.contains_key(&place.task) {
                let ahead = left.iter().rev().map(|place| &place.task);
                let ahead = ahead
                    .filter(|task| !visited.contains(task))
                    .take(READ_AHEAD);
                let tasks = std::iter::once(&place.task).chain(ahead).cloned().collect();
                seen.extend(self.read_members(tasks).await?);
            }
            let found = seen.remove(&place.task).flatten();
            if let Some(found) = &found {
                // Last in, first out: children come before followers.
                if found.has_followers {
                    self.places_below(EdgeKind::Follower, &place, max, &mut left)
                        .await?;
                }
                // A staged child is shown as a child.
                if found.has_staged {
                    self.places_below(EdgeKind::Staged, &place, max, &mut left)
                        .await?;
                }
                if found.children != Children::None {
                    self.places_below(EdgeKind::Child, &place, max, &mut left)
                        .await?;
                }
            }
            let shown = FamilyMember {
                task: place.task,
                level: place.level,
                above: place.above,
                state: found.as_ref().map(|found| found.state),
                name: found.as_ref().and_then(|found| found.name.clone()),
                error: found.as_ref().and_then(|found| found.error.clone()),
                children: found
                    .as_ref()
                    .map(|found| found.children)
                    .unwrap_or_default(),
            };
            let times = found.map(|found| found.times);
            members.push(Member { shown, times });
        }
        Ok((members, false))
    }

    /// The chain of members that determines when the last of them ends.
    fn critical_path(&self, members: &[Member]) -> Vec<PathStep> {
        let known = members.iter().filter_map(|member| {
            let times = member.times.as_ref()?;
            Some((&member.shown.task, (member, times)))
        });
        let known: HashMap<_, _> = known.collect();
        // In the order of the members, so that the same family has the same path.
        let timed = members.iter().filter_map(|member| {
            let times = member.times.as_ref()?;
            Some((&member.shown.task, times))
        });
        let timed: Vec<_> = timed.collect();
        let path = critical_path(&timed, self.deps.clock.now());
        let step = |(task, end)| {
            let (member, times) = known.get(task)?;
            Some(PathStep {
                task: TaskAddress::clone(task),
                state: member.shown.state?,
                started_at: times.started_at,
                finished_at: times.finished_at,
                expected_at: times.finished_at.is_none().then_some(end),
            })
        };
        path.into_iter().filter_map(step).collect()
    }

    async fn read_members(
        &self,
        tasks: Vec<TaskAddress>,
    ) -> Result<Vec<(TaskAddress, Option<Seen>)>, ApiError> {
        let reads = tasks.into_iter().map(|task| {
            Box::pin(async move {
                let found = self.deps.store.get(&task.job, &task.id).await?;
                Ok::<_, StoreError>((task, found.as_ref().map(Seen::of)))
            })
        });
        let reads: Vec<_> = stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
        let reads = reads.into_iter().collect::<Result<_, _>>();
        reads.map_err(ApiError::from)
    }

    /// Adds what waits for a member, in reverse order.
    async fn places_below(
        &self,
        kind: EdgeKind,
        above: &Place,
        max: usize,
        left: &mut Vec<Place>,
    ) -> Result<(), ApiError> {
        let (mut below, mut after) = (Vec::new(), None);
        loop {
            let query = EdgeQuery {
                from: above.task.clone(),
                kind,
                after,
                limit: EDGES_AT_ONCE,
            };
            let page = self.deps.store.edges(query).await?;
            after = page.edges.last().map(|edge| edge.to.clone());
            below.extend(page.edges.into_iter().map(|edge| Place {
                task: edge.to,
                level: above.level + 1,
                above: Some((kind, above.task.clone())),
            }));
            // More than can be shown need not be read.
            if !page.more || after.is_none() || below.len() > max {
                break;
            }
        }
        left.extend(below.into_iter().rev());
        Ok(())
    }

    /// Cancels a task with everything that waits for it, beginning with the last. Runs are asked to stop. What has ended stays
    /// as it is.
    pub(super) async fn cancel_family(
        &self,
        root: TaskAddress,
        reason: Option<Arc<str>>,
    ) -> Result<Task, ApiError> {
        let (job, id) = (root.job.clone(), root.id);
        self.task(&job, &id).await?;
        let (members, more) = self.members(root, MEMBERS_MAX).await?;
        if more {
            let message =
                format!("more than {MEMBERS_MAX} tasks wait for it; cancel them in parts");
            return Err(ApiError::new(
                ErrorKind::Conflict,
                ErrorReason::FamilyTooLarge,
                message,
            ));
        }
        let is_open = |member: &&FamilyMember| member.state.is_some_and(|state| !state.is_final());
        let shown = members.iter().rev().map(|member| &member.shown);
        let open: Vec<_> = shown.filter(is_open).collect();
        for some in open.chunks(CANCELS_AT_ONCE) {
            let commands = some.iter().map(|member| Command {
                job: member.task.job.clone(),
                id: member.task.id,
                event: Event::Cancel {
                    running: RunningCancel::Request,
                    reason: reason.clone(),
                },
                write: self.deps.rng.write_id(),
            });
            let (store, now) = (&*self.deps.store, self.deps.clock.now());
            let results = self
                .deps
                .effects()
                .apply(store, now, commands.collect())
                .await;
            for result in results {
                match result {
                    Ok(applied) => log_transition(None, &applied.task),
                    // It has ended meanwhile.
                    Err(StoreError::Rejected(_) | StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.task(&job, &id).await
    }
}
