//! `create`: stores new tasks.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use dueline_domain::{NewTask, Task, Timestamp};
use dueline_ports::{Create, Created, StoreError};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Duration, Instant};

use crate::{
    apply::index_entry,
    attr::{Item, num},
    blobs,
    calls::{CallContext, ConditionalOutcome, ItemKey, TRIES_MAX, WriteCondition, pause},
    encode::{self, EncodedTask},
    jobs::{JobEntry, JobSnapshot},
    row::{self, TaskRow, name},
    store::{CONCURRENT_CALLS, DynamoStore},
    unique::{KeyOwner, LookedUp},
};

/// A create that takes less than this, or than the time to live of definitions, needs no second check of its jobs: the
/// deletion of a job waits before it counts unfinished tasks, and counts those of such a create.
const QUICK_MAX: Duration = Duration::from_secs(1);

impl DynamoStore {
    pub(crate) async fn create(
        &self,
        now: Timestamp,
        new: Vec<Create>,
    ) -> Vec<Result<Created, StoreError>> {
        let count = new.len();
        let begun_at = Instant::now();
        let mut jobs = match self.jobs(false).await {
            Ok(jobs) => jobs,
            Err(error) => return vec![Err(error); count],
        };
        for create in &new {
            match self.jobs_including(jobs.clone(), &create.task.job).await {
                Ok(newer) => jobs = newer,
                Err(error) => return vec![Err(error); count],
            }
        }
        // A second submit of the same id or key waits for the first; all others run concurrently.
        let (mut first, mut repeated) = (Vec::new(), Vec::new());
        let (mut ids, mut keys) = (HashSet::new(), HashSet::new());
        for (index, create) in new.into_iter().enumerate() {
            let job = create.task.job.clone();
            let key = key_of(&create.task).map(|key| (job.clone(), key));
            let is_new = ids.insert((job, create.task.id));
            if key.is_none_or(|key| keys.insert(key)) && is_new {
                first.push((index, create));
            } else {
                repeated.push((index, create));
            }
        }
        self.count_created(&first, &jobs).await;
        let first_number = self.submit_numbers.reserve(now, count);
        let jobs = &jobs;
        let one = |(index, create): (usize, Create)| {
            let number = first_number.saturating_add(i64::try_from(index).unwrap_or(i64::MAX));
            Box::pin(async move { (index, self.create_one(now, jobs, create, number).await) })
        };
        let mut results: Vec<_> = stream::iter(first)
            .map(one)
            .buffer_unordered(CONCURRENT_CALLS)
            .collect()
            .await;
        for next in repeated {
            results.push(one(next).await);
        }
        results.sort_unstable_by_key(|(index, _)| *index);
        let results = results.into_iter().map(|(_, result)| result).collect();
        if begun_at.elapsed() < self.job_cache.ttl.max(QUICK_MAX) {
            return results;
        }
        self.recheck_jobs(jobs, results).await
    }

    /// Refuses tasks whose job has been deleted meanwhile. Deleting a job waits until all processes know of it, but not
    /// for a create that took longer. Such a create may have written into a deleted job and must not be acknowledged.
    async fn recheck_jobs(
        &self,
        then: &JobSnapshot,
        results: Vec<Result<Created, StoreError>>,
    ) -> Vec<Result<Created, StoreError>> {
        let now = self.jobs(true).await;
        let check = |created: Created| {
            let job = &created.task.job;
            let now = now.as_ref().map_err(|error| StoreError::Unavailable {
                message: error.to_string().into(),
                outcome_unknown: true,
            })?;
            let partitions =
                |jobs: &JobSnapshot| jobs.get(job).map(|entry| entry.partitions.clone());
            match partitions(now) == partitions(then) && now.open(job).is_ok() {
                true => Ok(created),
                false => Err(StoreError::no_job(job)),
            }
        };
        results
            .into_iter()
            .map(|result| result.and_then(check))
            .collect()
    }

    async fn create_one(
        &self,
        now: Timestamp,
        jobs: &JobSnapshot,
        create: Create,
        number: i64,
    ) -> Result<Created, StoreError> {
        // A submit that expects to find its key held looks first: a transaction that is refused costs more.
        let mut known = match create.task.unique() {
            Some(_) => match self.look_up_key(now, jobs, &create).await? {
                LookedUp::Answer(created) => return Ok(created),
                LookedUp::Owner(owner) => owner,
            },
            None => None,
        };
        for tries in 0..TRIES_MAX {
            let attempt = self.try_create(now, jobs, create.clone(), number, known.take());
            match attempt.await? {
                LookedUp::Answer(created) => return Ok(created),
                LookedUp::Owner(owner) => known = owner,
            }
            if tries > 0 {
                pause(tries).await;
            }
        }
        Err(StoreError::Throttled)
    }

    /// Stores a task, which takes its key over from `owner`.
    async fn try_create(
        &self,
        now: Timestamp,
        jobs: &JobSnapshot,
        create: Create,
        number: i64,
        owner: Option<KeyOwner>,
    ) -> Result<LookedUp, StoreError> {
        let entry = jobs.open(&create.task.job)?;
        let (table, partitions) = (&self.table, &entry.partitions);
        let context = CallContext::of_job(partitions.job.as_str(), "create");
        let (id, partition) = (create.task.id, partitions.of_task(&create.task.id));
        let task = new_task(create.clone(), entry, now);
        let index_entry = index_entry(entry, None, &task);
        self.touch_lane(context, entry, &task, now).await?;
        let EncodedTask { row, new_blobs, .. } =
            encode::encode(task, None, index_entry, partition.len());
        blobs::put(table, context, &partition, &id, &new_blobs, now, None).await?;
        let mut item = row.item.clone();
        item.extend(ItemKey::new(&partition, id.as_bytes()).item());
        if number > 0 {
            item.insert(name::SUBMIT_NUMBER.into(), num(number));
        }
        let existing = match key_of(&create.task) {
            Some(key) => {
                self.put_keyed(context, entry, &key, owner, &row, item)
                    .await?
            }
            None => match table
                .put(context, item, Some(WriteCondition::Absent))
                .await?
            {
                ConditionalOutcome::Done => None,
                ConditionalOutcome::Refused(Some(item)) => Some(ExistingTask::Item(item)),
                ConditionalOutcome::Refused(None) => Some(ExistingTask::Unknown),
            },
        };
        let Some(existing) = existing else {
            let row = Arc::new(row);
            self.record_write(entry, &partition, row.clone());
            return Ok(LookedUp::Answer(created(&row, false)));
        };
        let existing = match existing {
            ExistingTask::Row(row) => Some(row),
            ExistingTask::Item(item) => {
                let blobs = row::blobs_of(&row);
                let row = self
                    .decode_with_blobs(context, partitions, &id, item, blobs, false)
                    .await?;
                match row {
                    Some(row) => Some(Arc::new(row)),
                    None => self.load(context, partitions, &id).await?,
                }
            }
            ExistingTask::Unknown => self.load(context, partitions, &id).await?,
        };
        // The blobs of this call belong to the task if an earlier try of this very call stored it.
        let in_use = existing
            .as_ref()
            .map(|row| row::blob_refs(&row.item))
            .unwrap_or_default();
        let unused = new_blobs.into_iter().map(|blob| blob.name);
        let unused: Vec<_> = unused.filter(|blob| !in_use.contains(blob)).collect();
        blobs::delete(table, context, &partition, &id, &unused).await;
        let Some(existing) = existing else {
            // The existing task was deleted meanwhile. A repeated call stores the new one.
            return Err(StoreError::Throttled);
        };
        if existing.task.id == id && existing.task.write == row.task.write {
            // An earlier try of this write succeeded, but its answer was lost.
            self.record_write(entry, &partition, existing.clone());
            return Ok(LookedUp::Answer(created(&existing, false)));
        }
        self.meet(now, jobs, &create, &existing).await
    }
}

/// The task that exists already when a new one is stored.
pub(crate) enum ExistingTask {
    /// The item of the task with the same id.
    Item(Item),
    /// The task with the same idempotency key.
    Row(Arc<TaskRow>),
    /// A task with the same id, whose item was not returned.
    Unknown,
}

/// Numbers the submits of each millisecond, for the order of ready tasks. Ids that clients choose need not sort in the
/// order of submits.
#[derive(Debug, Default)]
pub(crate) struct SubmitNumbers(Mutex<(i64, i64)>);

impl SubmitNumbers {
    /// Reserves `count` numbers and answers the first.
    fn reserve(&self, now: Timestamp, count: usize) -> i64 {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (millis, used) = &mut *last;
        if *millis != now.millis() {
            (*millis, *used) = (now.millis(), 0);
        }
        let first = *used;
        *used = first.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
        first
    }
}

fn new_task(create: Create, entry: &JobEntry, now: Timestamp) -> Task {
    let Create {
        mut task,
        token,
        write,
        may_enqueue,
        claim_for,
    } = create;
    entry.job.admit(&mut task);
    let may_enqueue = may_enqueue && entry.job.enqueues_at_once();
    let mut task = task.into_task(&entry.job.policy, now, token, write, may_enqueue);
    if let Some(worker) = claim_for {
        task.claim_on_create(&entry.job.policy, worker);
    }
    task
}

pub(crate) fn key_of(task: &NewTask) -> Option<Arc<str>> {
    task.options.as_ref()?.key.clone()
}

pub(crate) fn created(row: &TaskRow, existed: bool) -> Created {
    Created {
        task: Box::new(row.task.clone()),
        existed,
        replaced: false,
    }
}
