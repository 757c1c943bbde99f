//! Storing tasks that wait for other tasks, of the same submit or stored before.
//!
//! A task is stored after those that it waits for, and then connected with them. A crash in between leaves a task that
//! waits; the consumer connects it when it checks that task.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dueline_api::{ApiError, check, check::BatchOrder, operation::Submitted};
use dueline_domain::{Family, NewTask, StateKind, TaskAddress, TaskEnd};
use dueline_ports::{ListQuery, StoreError};
use dueline_runtime::Follower;
use futures_util::{StreamExt as _, stream};

use super::Inner;

/// Predecessors that are read at once.
const READS_AT_ONCE: usize = 8;

/// The answers for the tasks of a submit; `None` for those that are not stored yet.
type Answers = Vec<Option<Result<Submitted, ApiError>>>;

/// What is known of a predecessor.
type Known = Result<Option<StateKind>, StoreError>;

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
        }
        let mut followers = Vec::new();
        for numbers in levels.into_values() {
            let (mut ready, mut places) = (Vec::new(), Vec::new());
            for number in numbers {
                let task = &mut tasks[number];
                match predecessors(task, number, &order, &answers, &known) {
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
                if let Ok(submitted) = &answer
                    && submitted.state == StateKind::Waiting
                    && let Some(family) = tasks[number].family()
                {
                    let (job, id) = (submitted.job.clone(), submitted.id);
                    let task = TaskAddress { job, id };
                    let open = family.open().cloned().collect();
                    followers.push((number, Follower { task, open }));
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

    /// The states of the predecessors that are no tasks of the submit.
    async fn read_predecessors(&self, tasks: &[NewTask]) -> HashMap<TaskAddress, Known> {
        let own: BTreeSet<_> = tasks.iter().map(NewTask::address).collect();
        let families = tasks.iter().filter_map(NewTask::family);
        let named = families.flat_map(|family| family.after.iter().map(|one| &one.task));
        let named: BTreeSet<_> = named.filter(|task| !own.contains(task)).cloned().collect();
        let reads = named.into_iter().map(|task| {
            Box::pin(async move {
                let found = self.deps.store.get(&task.job, &task.id).await;
                let state = found.map(|found| found.map(|found| found.kind()));
                (task, state)
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
        let key = task
            .options
            .as_ref()
            .and_then(|options| options.key.clone());
        let store = &self.deps.store;
        let found = match key {
            Some(key) => {
                let query = ListQuery {
                    key: Some(key),
                    limit: 1,
                    ..ListQuery::of(task.job.clone())
                };
                store.list(query).await.ok()?.tasks.pop()?
            }
            None if task.id_is_given => store.get(&task.job, &task.id).await.ok()??,
            None => return None,
        };
        found.matches_submit(task).then(|| Submitted {
            state: found.kind(),
            job: found.job,
            id: found.id,
            run_at: found.run_at,
            existed: true,
        })
    }
}

/// Records in a task which of its predecessors have ended, or says why the task cannot be stored.
fn predecessors(
    task: &mut NewTask,
    number: usize,
    order: &BatchOrder,
    answers: &Answers,
    known: &HashMap<TaskAddress, Known>,
) -> Result<(), ApiError> {
    let Some(family) = family_mut(task) else {
        return Ok(());
    };
    let rules = family.clone();
    for (one, before) in family.after.iter_mut().zip(&order.after[number]) {
        let unknown = || check::unknown_predecessor(&one.task);
        let state = match before {
            Some(before) => match &answers[*before] {
                Some(Ok(submitted)) if submitted.id == one.task.id => submitted.state,
                Some(Err(error)) => return Err(check::predecessor_refused(&one.task, error)),
                // An earlier submit has used its key, so that no task has this id.
                _ => return Err(unknown()),
            },
            None => match known.get(&one.task) {
                Some(Ok(Some(state))) => *state,
                Some(Err(error)) => return Err(error.clone().into()),
                _ => return Err(unknown()),
            },
        };
        one.end = TaskEnd::of(state);
        if let Some(why) = one.end.and_then(|end| rules.refusal(&one.task, end)) {
            return Err(check::predecessor_ended(&why).with_state(state));
        }
    }
    Ok(())
}
