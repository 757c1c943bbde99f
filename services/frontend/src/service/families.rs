//! Storing tasks that wait for other tasks, of the same submit or stored before.
//!
//! A task is stored after those that it waits for, and then connected with them. A crash in between leaves a task that
//! waits; the consumer connects it when it checks that task.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dueline_api::{
    ApiError, ErrorKind, ErrorReason, check, check::BatchOrder, operation::Submitted,
};
use dueline_domain::{
    Children, EdgeKind, Family, NewTask, Predecessor, StateKind, Task, TaskAddress, TaskEnd, limits,
};
use dueline_ports::{EdgeQuery, ListQuery, StoreError};
use dueline_runtime::Follower;
use futures_util::{StreamExt as _, stream};

use super::Inner;

/// Predecessors that are read at once.
const READS_AT_ONCE: usize = 8;
/// Edges that are read at once.
const EDGES_AT_ONCE: usize = 1_000;
/// Tasks that are read to find out whether a task would wait for itself.
const LOOP_TASKS_MAX: usize = 256;

/// The answers for the tasks of a submit; `None` for those that are not stored yet.
pub(super) type Answers = Vec<Option<Result<Submitted, ApiError>>>;

/// What is known of a task that is waited for.
type Known = Result<Option<Seen>, StoreError>;

/// A task that is waited for, as it was read.
struct Seen {
    state: StateKind,
    /// How it and its children have ended.
    family_end: Option<TaskEnd>,
    /// Whether later children of it count.
    takes_children: bool,
    has_children: bool,
    depth: u32,
}

impl Seen {
    fn of(task: &Task) -> Self {
        Self {
            state: task.kind(),
            family_end: task.family_end(),
            takes_children: !task.kind().is_final() || task.is_open_family(),
            has_children: task.children() != Children::None,
            depth: task.family().map_or(0, |family| family.depth),
        }
    }
}

fn family_mut(task: &mut NewTask) -> Option<&mut Family> {
    task.options.as_mut()?.family.as_deref_mut()
}

impl Inner {
    /// Stores tasks of which some wait for others: first those that wait for no task of this submit, then those that wait
    /// for these, and so on.
    pub(super) async fn store_families(
        &self,
        mut tasks: Vec<NewTask>,
    ) -> Vec<Result<Submitted, ApiError>> {
        let order = check::batch_order(&tasks);
        let known = self.read_predecessors(&tasks).await;
        let mut answers: Answers = vec![None; tasks.len()];
        let mut levels: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, depth) in order.depths.iter().enumerate() {
            match depth {
                Ok(depth) => levels.entry(*depth).or_default().push(number),
                Err(error) => answers[number] = Some(Err(error.clone())),
            }
            // Marked as it is stored, which saves a write.
            for before in order.after[number].iter().flatten() {
                let options = tasks[*before].options.get_or_insert_default();
                options.family.get_or_insert_default().has_followers = true;
            }
            if let Some(parent) = order.parent[number] {
                let options = tasks[parent].options.get_or_insert_default();
                options.family.get_or_insert_default().children = Children::Open;
            }
        }
        self.stage_runs(&tasks, &mut answers).await;
        self.refuse_loops(&tasks, &mut answers).await;
        self.refuse_too_many(&tasks, &known, &mut answers).await;
        let mut followers = Vec::new();
        for numbers in levels.into_values() {
            let (mut ready, mut places) = (Vec::new(), Vec::new());
            for number in numbers {
                let depth = depth_of(&tasks, number, &order, &known);
                let task = &mut tasks[number];
                let checked = match answers[number].take() {
                    Some(Err(refused)) => Err(refused),
                    _ => predecessors(task, number, depth, &order, &answers, &known),
                };
                match checked {
                    Ok(()) => {
                        ready.push(task.clone());
                        places.push(number);
                    }
                    Err(error) => {
                        answers[number] = Some(match self.stored_before(task).await {
                            Some(submitted) => Ok(submitted),
                            None => {
                                self.refused.increment(1);
                                Err(error)
                            }
                        });
                    }
                }
            }
            if ready.is_empty() {
                continue;
            }
            for (number, answer) in places.into_iter().zip(self.store_and_send(ready).await) {
                let answer = match answer {
                    Err(refused) => self.adopt(&tasks[number], refused).await,
                    answer => answer,
                };
                if let Ok(submitted) = &answer
                    && let Some(family) = tasks[number].family()
                    && (submitted.state == StateKind::Waiting || family.parent.is_some())
                {
                    let (job, id) = (submitted.job.clone(), submitted.id);
                    let task = TaskAddress { job, id };
                    followers.push((number, Follower::of(task, Some(family))));
                }
                answers[number] = Some(answer);
            }
        }
        self.connect(followers, &mut answers).await;
        let missing = || Err(ApiError::unavailable("the store gave no answer"));
        let answers = answers.into_iter();
        answers
            .map(|answer| answer.unwrap_or_else(missing))
            .collect()
    }

    /// Connects stored tasks with those that they wait for. A failure is no error of the submit: the tasks are durable, and
    /// the consumer connects them later.
    async fn connect(&self, followers: Vec<(usize, Follower)>, answers: &mut Answers) {
        if followers.is_empty() {
            return;
        }
        let (numbers, followers): (Vec<usize>, Vec<Follower>) = followers.into_iter().unzip();
        match self.deps.families().link(&followers).await {
            Ok(linked) => {
                let moved: HashMap<_, _> = linked.moved.into_iter().collect();
                for (number, follower) in numbers.into_iter().zip(&followers) {
                    if let (Some(Some(Ok(submitted))), Some(state)) =
                        (answers.get_mut(number), moved.get(&follower.task))
                    {
                        submitted.state = *state;
                    }
                }
            }
            Err(error) => {
                let tasks = followers.len();
                tracing::warn!(%error, tasks, "failed to connect tasks with those that they wait for");
            }
        }
    }

    /// Refuses children that would wait for the family that they belong to: a predecessor, or a task of its family, waits,
    /// perhaps by way of others, for the parent with all its children, or for a task above the parent.
    async fn refuse_loops(&self, tasks: &[NewTask], answers: &mut Answers) {
        for (task, answer) in tasks.iter().zip(answers) {
            let Some(family) = task.family() else {
                continue;
            };
            let Some(parent) = family.parent.as_ref().filter(|_| !family.after.is_empty()) else {
                continue;
            };
            if answer.is_none() && self.is_loop(&parent.task, &family.after).await {
                let message = "parent: what the task waits for waits for the family of its parent";
                let error = ApiError::new(ErrorKind::Invalid, ErrorReason::Cycle, message);
                *answer = Some(Err(error.with_field("parent")));
            }
        }
    }

    /// Whether one of these waits for the family of `parent`, or of a task above it. Looks at a bounded number of tasks, and
    /// leaves out those that cannot be read.
    async fn is_loop(&self, parent: &TaskAddress, after: &[Predecessor]) -> bool {
        let store = &self.deps.store;
        let (mut above, mut next) = (BTreeSet::new(), Some(parent.clone()));
        while let Some(task) = next.take().filter(|_| above.len() < LOOP_TASKS_MAX) {
            let found = store.get(&task.job, &task.id).await.ok().flatten();
            above.insert(task);
            let family = found.as_ref().and_then(Task::family);
            next = family.and_then(|family| Some(family.parent.as_ref()?.task.clone()));
        }
        // A follower of a task waits for its whole family; a child waits for the own run of its parent alone.
        let mut seen: BTreeSet<(TaskAddress, EdgeKind)> = BTreeSet::new();
        let follow = |one: &Predecessor| (one.task.clone(), EdgeKind::Follower);
        let mut left: Vec<_> = after.iter().map(follow).collect();
        while let Some((task, kind)) = left.pop() {
            if seen.len() >= LOOP_TASKS_MAX || !seen.insert((task.clone(), kind)) {
                continue;
            }
            let found = store.get(&task.job, &task.id).await.ok().flatten();
            let Some(family) = found.as_ref().and_then(Task::family) else {
                continue;
            };
            if kind == EdgeKind::Follower && family.children == Children::Open {
                let children = store.open_children(&task, LOOP_TASKS_MAX).await;
                let children = children.unwrap_or_default().into_iter();
                left.extend(children.map(|child| (child, EdgeKind::Follower)));
            }
            for (kind, from) in family.open() {
                if kind == EdgeKind::Follower && above.contains(from) {
                    return true;
                }
                left.push((from.clone(), kind));
            }
        }
        after.iter().any(|one| above.contains(&one.task))
    }

    /// Refuses children of parents that have too many.
    async fn refuse_too_many(
        &self,
        tasks: &[NewTask],
        known: &HashMap<TaskAddress, Known>,
        answers: &mut Answers,
    ) {
        let mut wanted: HashMap<&TaskAddress, usize> = HashMap::new();
        for parent in tasks.iter().filter_map(parent_of) {
            *wanted.entry(parent).or_default() += 1;
        }
        let mut counts: HashMap<&TaskAddress, usize> = HashMap::new();
        let max = limits().children_max;
        for (task, answer) in tasks.iter().zip(answers) {
            let Some(parent) = parent_of(task) else {
                continue;
            };
            if !counts.contains_key(parent) {
                let stored = match known.get(parent) {
                    Some(Ok(Some(seen))) if seen.has_children => {
                        let wanted = wanted.get(parent).copied().unwrap_or_default();
                        self.count_children(parent, wanted).await
                    }
                    _ => 0,
                };
                counts.insert(parent, stored);
            }
            let count = counts.entry(parent).or_default();
            if *count >= max && answer.is_none() {
                let message =
                    format!("task {parent} has {max} children already, which is the most");
                *answer = Some(Err(check::family_too_large(
                    ErrorReason::TooManyChildren,
                    message,
                )));
            }
            *count += 1;
        }
    }

    /// The number of children of a task, up to a little more than is allowed; 0 if there is room for those that are wanted for
    /// sure.
    async fn count_children(&self, parent: &TaskAddress, wanted: usize) -> usize {
        if self.child_counts.take(parent, wanted) {
            return 0;
        }
        let (mut count, mut after) = (0, None);
        while count <= limits().children_max {
            let query = EdgeQuery {
                from: parent.clone(),
                kind: EdgeKind::Child,
                after,
                limit: EDGES_AT_ONCE,
            };
            let Ok(page) = self.deps.store.edges(query).await else {
                return count;
            };
            count += page.edges.len();
            after = page.edges.last().map(|edge| edge.to.clone());
            if !page.more || after.is_none() {
                break;
            }
        }
        self.child_counts.counted(parent, count, wanted);
        count
    }

    /// The states of the tasks that are waited for and are no tasks of the submit.
    async fn read_predecessors(&self, tasks: &[NewTask]) -> HashMap<TaskAddress, Known> {
        let own: BTreeSet<_> = tasks.iter().map(NewTask::address).collect();
        let families = tasks.iter().filter_map(NewTask::family);
        let named = families.flat_map(|family| family.after.iter().chain(&family.parent));
        let named = named.map(|one| &one.task);
        let named: BTreeSet<_> = named.filter(|task| !own.contains(task)).cloned().collect();
        let reads = named.into_iter().map(|task| {
            Box::pin(async move {
                let found = self.deps.store.get(&task.job, &task.id).await;
                let seen = found.map(|found| found.as_ref().map(Seen::of));
                (task, seen)
            })
        });
        stream::iter(reads)
            .buffer_unordered(READS_AT_ONCE)
            .collect()
            .await
    }

    /// The task that an earlier, equal submit has stored. What that one waits for may have ended since, in a way for which
    /// a new submit would be refused.
    async fn stored_before(&self, task: &NewTask) -> Option<Submitted> {
        let found = self.find_stored(task).await?;
        found.matches_submit(task).then(|| Submitted {
            state: found.kind(),
            job: found.job,
            id: found.id,
            run_at: found.run_at,
            existed: true,
            replaced: false,
        })
    }

    /// The task with the key or the id of a submit.
    pub(super) async fn find_stored(&self, task: &NewTask) -> Option<Task> {
        let key = task
            .options
            .as_ref()
            .and_then(|options| options.key.clone());
        let store = &self.deps.store;
        match key {
            Some(key) => {
                let query = ListQuery {
                    key: Some(key),
                    limit: 1,
                    ..ListQuery::of(task.job.clone())
                };
                let found = store.list(query).await.ok()?.tasks.pop()?;
                // A list may leave out what one task has.
                store.get(&found.job, &found.id).await.ok()?
            }
            None if task.id_is_given => store.get(&task.job, &task.id).await.ok()?,
            None => None,
        }
    }
}

fn parent_of(task: &NewTask) -> Option<&TaskAddress> {
    let family = task.family();
    family.and_then(|family| Some(&family.parent.as_ref()?.task))
}

/// How many parents are above a task.
fn depth_of(
    tasks: &[NewTask],
    number: usize,
    order: &BatchOrder,
    known: &HashMap<TaskAddress, Known>,
) -> u32 {
    let parent = tasks[number]
        .family()
        .and_then(|family| family.parent.as_ref());
    let Some(parent) = parent else {
        return 0;
    };
    let depth = match order.parent[number] {
        // Its level is stored before, so that its depth is known.
        Some(parent) => tasks[parent].family().map_or(0, |family| family.depth),
        None => match known.get(&parent.task) {
            Some(Ok(Some(seen))) => seen.depth,
            _ => 0,
        },
    };
    depth + 1
}

/// Records in a task which of those that it waits for have ended, or says why the task cannot be stored.
fn predecessors(
    task: &mut NewTask,
    number: usize,
    depth: u32,
    order: &BatchOrder,
    answers: &Answers,
    known: &HashMap<TaskAddress, Known>,
) -> Result<(), ApiError> {
    let Some(family) = family_mut(task) else {
        return Ok(());
    };
    let max = limits().depth_max;
    if depth > max {
        let message = format!("{max} parents are above the parent, which is the most");
        return Err(check::family_too_large(ErrorReason::TooDeep, message));
    }
    family.depth = depth;
    let rules = family.clone();
    let parent = family.parent.iter_mut();
    let parent = parent.map(|one| (EdgeKind::Child, one, &order.parent[number]));
    let after = family.after.iter_mut().zip(&order.after[number]);
    let after = after.map(|(one, before)| (EdgeKind::Follower, one, before));
    for (kind, one, before) in parent.chain(after) {
        let unknown = || check::unknown_predecessor(kind, &one.task);
        let seen = match before {
            Some(before) => match &answers[*before] {
                // What has become of it is found out when the two are connected.
                Some(Ok(submitted)) if submitted.id == one.task.id => continue,
                Some(Err(error)) => {
                    return Err(check::predecessor_refused(kind, &one.task, error));
                }
                // An earlier submit has used its key, so that no task has this id.
                _ => return Err(unknown()),
            },
            None => match known.get(&one.task) {
                Some(Ok(Some(seen))) => seen,
                Some(Err(error)) => return Err(error.clone().into()),
                _ => return Err(unknown()),
            },
        };
        let end = match kind {
            EdgeKind::Follower => seen.family_end,
            EdgeKind::Child | EdgeKind::Staged => TaskEnd::of(seen.state),
        };
        if let Some(why) = end.and_then(|end| rules.refusal(kind, &one.task, end)) {
            return Err(check::predecessor_ended(kind, &why).with_state(seen.state));
        }
        // A child must be known to a parent whose family is open before it goes on.
        let is_known = kind == EdgeKind::Follower || !seen.takes_children;
        one.end = end.filter(|_| is_known);
    }
    Ok(())
}
