//! `apply`: loads a task, decides the transition, and writes it on the condition that the task has not changed
//! meanwhile.

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::types::AttributeValue;
use dueline_domain::{Event, Policy, Task, TaskId, Timestamp, check_transition};
use dueline_ports::{Applied, Command, StoreError};
use futures_util::{StreamExt as _, stream};

use crate::{
    attr::{Item, id_bytes},
    blobs,
    calls::{
        CallContext, ConditionalOutcome, ItemChange, ItemKey, TRIES_MAX, WriteCondition, pause,
    },
    encode::{self, EncodedTask, IndexEntry},
    hint,
    jobs::{JobEntry, JobSnapshot},
    load::Bodies,
    row::{self, BlobRef, TaskRow, name},
    schema,
    store::{CONCURRENT_CALLS, DynamoStore},
};

impl DynamoStore {
    pub(crate) async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let count = commands.len();
        let mut jobs = match self.jobs_or_stale().await {
            Ok(jobs) => jobs,
            Err(error) => return vec![Err(error); count],
        };
        for command in &commands {
            // A job that is missing from an old snapshot must not make its messages count as stale.
            match self.jobs_including(jobs.clone(), &command.job).await {
                Ok(newer) => jobs = newer,
                Err(error) => return vec![Err(error); count],
            }
        }
        // Commands for one task run in their order; different tasks run concurrently.
        let mut sequences: Vec<Vec<(usize, Command)>> = Vec::new();
        let mut by_task = HashMap::new();
        for (index, command) in commands.into_iter().enumerate() {
            let key = (command.job.clone(), command.id);
            let sequence = *by_task.entry(key).or_insert_with(|| {
                sequences.push(Vec::new());
                sequences.len() - 1
            });
            sequences[sequence].push((index, command));
        }
        let jobs = &jobs;
        let mut running = stream::iter(sequences)
            .map(|sequence| {
                Box::pin(async move {
                    let mut results = Vec::with_capacity(sequence.len());
                    for (index, command) in sequence {
                        results.push((index, self.apply_one(now, jobs, &command).await));
                    }
                    results
                })
            })
            .buffer_unordered(CONCURRENT_CALLS);
        let mut results = Vec::new();
        while let Some(finished) = running.next().await {
            results.extend(finished);
        }
        results.sort_unstable_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    pub(crate) async fn apply_one(
        &self,
        now: Timestamp,
        jobs: &JobSnapshot,
        command: &Command,
    ) -> Result<Applied, StoreError> {
        let entry = match command.event {
            // A redriven task is unfinished again, which a job that is being deleted must not get.
            Event::Redrive | Event::Revive(_) | Event::Reopen | Event::Adopt(_) => {
                jobs.open(&command.job)?
            }
            _ => jobs
                .get(&command.job)
                .ok_or_else(|| StoreError::no_job(&command.job))?,
        };
        let context = CallContext::of_job(command.job.as_str(), command.event.verb().name());
        let partition = entry.partitions.of_task(&command.id);
        // Commands of this process for the same task wait for each other.
        let _lock = self.task_locks.lock(&command.id).await;
        // The first decision is based on the cached row, or on an eventually consistent read, which costs half. Both
        // may be old.
        // A trigger needs no payload: due tasks with large ones would be read for nothing.
        let bodies = match command.event {
            Event::Trigger(_) => Bodies::Inline,
            _ => Bodies::All,
        };
        let (id, partitions) = (&command.id, &entry.partitions);
        let cached = self.row_cache.get(&partition, id);
        let mut row = match cached.filter(|row| bodies == Bodies::Inline || !row.lacks_bodies()) {
            Some(row) => Some(row),
            None => self.load_eventual(context, partitions, id, bodies).await?,
        };
        let mut may_be_old = row.is_some();
        for tries in 0..TRIES_MAX {
            let current = match row.take() {
                Some(row) => row,
                None => match self
                    .load_consistent(context, partitions, id, bodies)
                    .await?
                {
                    Some(row) => row,
                    None => return Err(StoreError::no_task(id)),
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
            // An old row may only lead to a write, whose condition fails then. Any other answer needs a consistent
            // read.
            if std::mem::take(&mut may_be_old) && !matches!(decided, Some(Ok(_))) {
                self.row_cache.forget(&partition, &command.id);
                continue;
            }
            let Some(decided) = decided else {
                return Ok(applied(&current, true));
            };
            let mut after = current.task.clone();
            after.advance(decided?);
            debug_assert_eq!(check_transition(&current.task, &after), Ok(()));
            match self.write(context, entry, &current, after).await? {
                TaskWrite::Done(row) => return Ok(applied(&row, false)),
                TaskWrite::Missing => return Err(StoreError::no_task(&command.id)),
                TaskWrite::Changed(item) => {
                    row = self.decode_changed(context, entry, &current, item).await?;
                    let own = row.as_ref().filter(|row| row.task.write == command.write);
                    if let Some(row) = own {
                        // The first try of this write succeeded, but its answer was lost.
                        self.record_write(entry, &partition, row.clone());
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

    /// Decodes the item that another write has left; `None` if the task has changed again meanwhile.
    async fn decode_changed(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        old: &TaskRow,
        item: Item,
    ) -> Result<Option<Arc<TaskRow>>, StoreError> {
        let id = old.task.id;
        let blobs = row::blobs_of(old);
        let row = self
            .decode_with_blobs(context, &entry.partitions, &id, item, blobs, false)
            .await?;
        Ok(row.map(Arc::new))
    }

    /// Writes the next version of a row: first its new blobs, then the task. Then blobs of the old version are deleted.
    async fn write(
        &self,
        context: CallContext<'_>,
        entry: &JobEntry,
        old: &TaskRow,
        mut after: Task,
    ) -> Result<TaskWrite, StoreError> {
        entry.job.admit_stored(&mut after);
        let (table, partitions) = (&self.table, &entry.partitions);
        let (id, partition) = (after.id, partitions.of_task(&after.id));
        let changed_at = after.changed_at;
        let index_entry = index_entry(entry, Some(old), &after);
        // A task that is due earlier than its lane is read next is announced like one that gets into it.
        let is_earlier = |hint: Timestamp| old.hint().is_none_or(|before| hint < before);
        let announces = |(key, hint): &(String, Timestamp)| {
            schema::is_lane(key) && (old.due_key() != Some(key) || is_earlier(*hint))
        };
        if index_entry.due.as_ref().is_some_and(announces) {
            self.touch_lane(context, entry, &after, changed_at).await?;
        }
        let expires_at = index_entry.expires_at;
        let encoded = encode::encode(after, Some(old), index_entry, partition.len());
        let EncodedTask {
            row,
            new_blobs,
            old_blobs,
        } = encoded;
        blobs::put(
            table, context, &partition, &id, &new_blobs, changed_at, expires_at,
        )
        .await?;
        let condition = WriteCondition::Is(name::WRITE, id_bytes(old.task.write.to_stored()));
        let change = difference(&old.item, &row.item);
        let key = ItemKey::new(&partition, id.as_bytes());
        let outcome = table.update(context, &key, change, Some(condition)).await;
        let written: Vec<BlobRef> = new_blobs.into_iter().map(|blob| blob.name).collect();
        match outcome {
            Ok(ConditionalOutcome::Done) => {
                let row = Arc::new(row);
                self.record_write(entry, &partition, row.clone());
                blobs::delete(table, context, &partition, &id, &old_blobs).await;
                Ok(TaskWrite::Done(row))
            }
            Ok(ConditionalOutcome::Refused(item)) => {
                self.row_cache.forget(&partition, &id);
                let in_use = blobs::set(item.as_ref().map(row::blob_refs).unwrap_or_default());
                let unused: Vec<_> = written
                    .into_iter()
                    .filter(|blob| !in_use.contains(blob))
                    .collect();
                blobs::delete(table, context, &partition, &id, &unused).await;
                Ok(item.map_or(TaskWrite::Missing, TaskWrite::Changed))
            }
            Err(error) => {
                self.row_cache.forget(&partition, &id);
                self.due_memory.forget(&entry.partitions.job, &id);
                Err(error)
            }
        }
    }

    /// Records a row that this process has just written in the row cache and for the scans of the due index.
    pub(crate) fn record_write(&self, entry: &JobEntry, partition: &str, row: Arc<TaskRow>) {
        let recheck = hint::recheck_after(&entry.job.policy, 0);
        self.due_memory
            .record_write(&entry.partitions, &row, recheck);
        self.row_cache.put(partition, row);
    }
}

/// How the write of a task ended.
enum TaskWrite {
    Done(Arc<TaskRow>),
    /// Another write came first; this is the item that it left.
    Changed(Item),
    /// The task does not exist any more.
    Missing,
}

fn applied(row: &TaskRow, repeated: bool) -> Applied {
    Applied {
        task: Box::new(row.task.clone()),
        repeated,
    }
}

/// Where a task stands in the due index after a write, and when it expires.
pub(crate) fn index_entry(entry: &JobEntry, before: Option<&TaskRow>, task: &Task) -> IndexEntry {
    let policy: &Policy = &entry.job.policy;
    let before = before.and_then(|before| Some((before.due_key()?, before.hint()?)));
    let lane = entry.lane_key(task);
    let due = match (lane, task.trigger_at()) {
        // The tasks of a lane are read in the order of their hints, which are exact.
        (Some(lane), Some(trigger_at)) => Some((lane, trigger_at)),
        _ => {
            // A task keeps its shard while it is in the index.
            let before = before.filter(|(key, _)| !schema::is_lane(key));
            let hint = hint::hint(before.map(|(_, hint)| hint), task, policy);
            let key = before.map(|(key, _)| key.to_owned());
            hint.map(|hint| (key.unwrap_or_else(|| entry.due_key(&task.id)), hint))
        }
    };
    // A task that owes an effect must not expire before the effect is done.
    let ended_at = task.finished_at.filter(|_| task.owed.is_none());
    let expires_at = ended_at.zip(policy.retention);
    IndexEntry {
        due,
        expires_at: expires_at.map(|(at, retention)| at.after(retention)),
    }
}

/// The change of attributes between two versions of an item.
fn difference(before: &Item, after: &Item) -> ItemChange {
    let mut set: Vec<(String, AttributeValue)> = Vec::new();
    for (name, value) in after {
        if before.get(name) != Some(value) {
            set.push((name.clone(), value.clone()));
        }
    }
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    debug_assert!(
        !set.iter()
            .any(|(name, _)| [schema::PK, schema::SK].contains(&name.as_str()))
    );
    ItemChange {
        set,
        remove: removed.cloned().collect(),
        add: Vec::new(),
    }
}

/// Number of task locks.
const TASK_LOCKS: u64 = 1_024;

/// A fixed number of locks over which tasks are spread by their ids.
#[derive(Debug)]
pub(crate) struct TaskLocks(Vec<tokio::sync::Mutex<()>>);

impl Default for TaskLocks {
    fn default() -> Self {
        Self(
            (0..TASK_LOCKS)
                .map(|_| tokio::sync::Mutex::default())
                .collect(),
        )
    }
}

impl TaskLocks {
    async fn lock(&self, id: &TaskId) -> tokio::sync::MutexGuard<'_, ()> {
        let lock = schema::spread(id.as_bytes()) % TASK_LOCKS;
        let lock = usize::try_from(lock).unwrap_or(0);
        self.0[lock].lock().await
    }
}
