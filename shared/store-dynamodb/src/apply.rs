//! Commands: load, decide, write on the condition that nobody wrote meanwhile.

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::types::AttributeValue;
use dueline_domain::{Event, Policy, Task, TaskId, Timestamp, check_step};
use dueline_ports::{Applied, Command, StoreError};
use futures_util::{StreamExt as _, stream};

use crate::{
    attr::{Item, id_bytes},
    calls::{Change, Condition, Conditional, For, Key, TRIES_MAX, pause},
    hint,
    jobs::{Entry, Known},
    layout::{self, Laid, Marks},
    parts,
    row::{self, PartRef, Row, name},
    schema,
    store::{BUSY, Inner},
};

impl Inner {
    pub(crate) async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let count = commands.len();
        let mut jobs = match self.jobs_as_known().await {
            Ok(jobs) => jobs,
            Err(error) => return vec![Err(error); count],
        };
        for command in &commands {
            // Without the job a message would count as stale for ever; an old definition is no reason for that.
            match self.jobs_with(jobs.clone(), &command.job).await {
                Ok(newer) => jobs = newer,
                Err(error) => return vec![Err(error); count],
            }
        }
        // Commands for one task stay in their order; different tasks do not wait for each other.
        let mut lanes: Vec<Vec<(usize, Command)>> = Vec::new();
        let mut by_task = HashMap::new();
        for (place, command) in commands.into_iter().enumerate() {
            let key = (command.job.clone(), command.id);
            let lane = *by_task.entry(key).or_insert_with(|| {
                lanes.push(Vec::new());
                lanes.len() - 1
            });
            lanes[lane].push((place, command));
        }
        let jobs = &jobs;
        let mut running = stream::iter(lanes)
            .map(|lane| {
                Box::pin(async move {
                    let mut answers = Vec::with_capacity(lane.len());
                    for (place, command) in lane {
                        answers.push((place, self.apply_one(now, jobs, &command).await));
                    }
                    answers
                })
            })
            .buffer_unordered(BUSY);
        let mut results = Vec::new();
        while let Some(answers) = running.next().await {
            results.extend(answers);
        }
        results.sort_unstable_by_key(|(place, _)| *place);
        results.into_iter().map(|(_, result)| result).collect()
    }

    async fn apply_one(
        &self,
        now: Timestamp,
        jobs: &Known,
        command: &Command,
    ) -> Result<Applied, StoreError> {
        let entry = match command.event {
            // A new life, in a job that may be about to go.
            Event::Redrive => jobs.open(&command.job)?,
            _ => jobs
                .get(&command.job)
                .ok_or_else(|| StoreError::no_job(&command.job))?,
        };
        let of = For::job(command.job.as_str(), command.event.verb().name());
        let partition = entry.home.of(&command.id);
        // Within this process nobody decides on a task that is just being written.
        let _lane = self.lanes.lock(&command.id).await;
        // What is known here, or what a replica knows, which costs half: either may be old.
        let mut row = match self.written.get(&partition, &command.id) {
            Some(row) => Some(row),
            None => self.glance(of, &entry.home, &command.id).await?,
        };
        let mut may_be_old = row.is_some();
        for tries in 0..TRIES_MAX {
            let current = match row.take() {
                Some(row) => row,
                None => match self.load(of, &entry.home, &command.id).await? {
                    Some(row) => row,
                    None => return Err(StoreError::no_task(&command.id)),
                },
            };
            let decided = if current.task.write == command.write {
                None
            } else {
                let policy = &entry.job.policy;
                Some(dueline_domain::apply(
                    &current.task,
                    policy,
                    &command.event,
                    command.write,
                    now,
                ))
            };
            // Only a write may be concluded from an old row, because its condition fails then.
            if std::mem::take(&mut may_be_old) && !matches!(decided, Some(Ok(_))) {
                self.written.forget(&partition, &command.id);
                continue;
            }
            let Some(decided) = decided else {
                return Ok(applied(&current, true));
            };
            let mut after = current.task.clone();
            after.advance(decided?);
            debug_assert_eq!(check_step(&current.task, &after), Ok(()));
            match self.write(of, entry, &current, after).await? {
                Step::Done(row) => return Ok(applied(&row, false)),
                Step::Gone => return Err(StoreError::no_task(&command.id)),
                Step::Moved(item) => {
                    row = self.moved(of, entry, &current, item).await?;
                    let own = row.as_ref().filter(|row| row.task.write == command.write);
                    if let Some(row) = own {
                        // Our own write: its answer was lost, and what was sent again met it.
                        self.wrote(entry, &partition, row.clone());
                        return Ok(applied(row, true));
                    }
                }
            }
            if tries > 0 {
                pause(tries).await;
            }
        }
        Err(StoreError::Throttled)
    }

    /// The row that stood in the way, made whole; `None` if it has moved again.
    async fn moved(
        &self,
        of: For<'_>,
        entry: &Entry,
        seen: &Row,
        item: Item,
    ) -> Result<Option<Arc<Row>>, StoreError> {
        let id = seen.task.id;
        let parts = row::parts_of(seen);
        let row = self
            .complete(of, &entry.home, &id, item, parts, false)
            .await?;
        Ok(row.map(Arc::new))
    }

    /// Writes the next version of a row: its new parts first, then the task, then old parts go.
    async fn write(
        &self,
        of: For<'_>,
        entry: &Entry,
        seen: &Row,
        after: Task,
    ) -> Result<Step, StoreError> {
        let (table, home) = (&self.table, &entry.home);
        let (id, partition) = (after.id, home.of(&after.id));
        let changed_at = after.changed_at;
        let marks = marks(entry, Some(seen), &after);
        let expires_at = marks.expires_at;
        let laid = layout::lay_out(after, Some(seen), marks, partition.len());
        let Laid { row, put, drop } = laid;
        parts::put(table, of, &partition, &id, &put, changed_at, expires_at).await?;
        let condition = Condition::Is(name::WRITE, id_bytes(seen.task.write.to_stored()));
        let change = difference(&seen.item, &row.item);
        let key = Key::new(&partition, id.as_bytes());
        let outcome = table.update(of, &key, change, Some(condition)).await;
        let written: Vec<PartRef> = put.into_iter().map(|part| part.name).collect();
        match outcome {
            Ok(Conditional::Done) => {
                let row = Arc::new(row);
                self.wrote(entry, &partition, row.clone());
                parts::delete(table, of, &partition, &id, &drop).await;
                Ok(Step::Done(row))
            }
            Ok(Conditional::Refused(item)) => {
                self.written.forget(&partition, &id);
                let in_use = parts::set(item.as_ref().map(row::refs).unwrap_or_default());
                let unused: Vec<_> = written
                    .into_iter()
                    .filter(|part| !in_use.contains(part))
                    .collect();
                parts::delete(table, of, &partition, &id, &unused).await;
                Ok(item.map_or(Step::Gone, Step::Moved))
            }
            Err(error) => {
                self.written.forget(&partition, &id);
                self.watch.forget(&entry.home.job, &id);
                Err(error)
            }
        }
    }

    /// Notes a row that this process has just written.
    pub(crate) fn wrote(&self, entry: &Entry, partition: &str, row: Arc<Row>) {
        let again = hint::look_again(&entry.job.policy, 0);
        self.watch.note(&entry.home, &row, again);
        self.written.put(partition, row);
    }
}

enum Step {
    Done(Arc<Row>),
    /// Somebody else wrote; this is what stands there.
    Moved(Item),
    Gone,
}

fn applied(row: &Row, repeated: bool) -> Applied {
    Applied {
        task: Box::new(row.task.clone()),
        repeated,
    }
}

/// Where a task belongs in the index, and when it may go.
pub(crate) fn marks(entry: &Entry, before: Option<&Row>, task: &Task) -> Marks {
    let policy: &Policy = &entry.job.policy;
    let hint = hint::hint(before.and_then(Row::hint), task, policy);
    let due = hint.map(|hint| {
        // A task never changes its shard while it is in the index.
        let key = before.and_then(Row::due_key).map(ToOwned::to_owned);
        (key.unwrap_or_else(|| entry.due_key(&task.id)), hint)
    });
    let expires_at = task.finished_at.zip(policy.retention);
    Marks {
        due,
        expires_at: expires_at.map(|(at, retention)| at.after(retention)),
    }
}

/// What turns one version of our attributes into the next.
fn difference(before: &Item, after: &Item) -> Change {
    let mut set: Vec<(String, AttributeValue)> = Vec::new();
    for (name, value) in after {
        if before.get(name) != Some(value) {
            set.push((name.clone(), value.clone()));
        }
    }
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    debug_assert!(
        !set.iter()
            .any(|(name, _)| [schema::PK, schema::SK].contains(&name.as_str()))
    );
    Change {
        set,
        remove: gone.cloned().collect(),
        add: Vec::new(),
    }
}

/// Locks for tasks, each for a part of them.
const LANES: u64 = 1_024;

/// Locks by task, a fixed number of them.
#[derive(Debug)]
pub(crate) struct Lanes(Vec<tokio::sync::Mutex<()>>);

impl Default for Lanes {
    fn default() -> Self {
        Self((0..LANES).map(|_| tokio::sync::Mutex::default()).collect())
    }
}

impl Lanes {
    async fn lock(&self, id: &TaskId) -> tokio::sync::MutexGuard<'_, ()> {
        let lane = schema::spread(id.as_bytes()) % LANES;
        let lane = usize::try_from(lane).unwrap_or(0);
        self.0[lane].lock().await
    }
}
