//! Submits.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use dueline_domain::{NewTask, Task, Timestamp};
use dueline_ports::{Create, Created, StoreError};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Duration, Instant};

use crate::{
    apply::marks,
    attr::{Item, num},
    calls::{Condition, Conditional, For, Key},
    jobs::{Entry, Known},
    layout::{self, Laid},
    parts,
    row::{self, Row, name},
    store::{BUSY, Inner},
};

/// A submit that takes less than this is sure to be seen by whoever deletes its job.
const QUICK_MAX: Duration = Duration::from_secs(1);

impl Inner {
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
            match self.jobs_with(jobs.clone(), &create.task.job).await {
                Ok(newer) => jobs = newer,
                Err(error) => return vec![Err(error); count],
            }
        }
        // A second submit of one id or key waits for the first; all others go side by side.
        let (mut first, mut again) = (Vec::new(), Vec::new());
        let (mut ids, mut keys) = (HashSet::new(), HashSet::new());
        for (place, create) in new.into_iter().enumerate() {
            let job = create.task.job.clone();
            let key = key_of(&create.task).map(|key| (job.clone(), key));
            let is_new = ids.insert((job, create.task.id));
            if key.is_none_or(|key| keys.insert(key)) && is_new {
                first.push((place, create));
            } else {
                again.push((place, create));
            }
        }
        self.count_created(&first, &jobs).await;
        let places = self.places.next(now, count);
        let jobs = &jobs;
        let one = |(place, create): (usize, Create)| {
            let order = places.saturating_add(i64::try_from(place).unwrap_or(i64::MAX));
            Box::pin(async move { (place, self.create_one(now, jobs, create, order).await) })
        };
        let mut results: Vec<_> = stream::iter(first)
            .map(one)
            .buffer_unordered(BUSY)
            .collect()
            .await;
        for next in again {
            results.push(one(next).await);
        }
        results.sort_unstable_by_key(|(place, _)| *place);
        let results = results.into_iter().map(|(_, result)| result).collect();
        if begun_at.elapsed() < self.jobs.ttl.max(QUICK_MAX) {
            return results;
        }
        self.still_open(jobs, results).await
    }

    /// Whoever deletes a job waits until everybody knows, but not for a write that took longer than that: such a task
    /// may have come into a job that is gone, and then it must not be acknowledged.
    async fn still_open(
        &self,
        then: &Known,
        results: Vec<Result<Created, StoreError>>,
    ) -> Vec<Result<Created, StoreError>> {
        let now = self.jobs(true).await;
        let check = |created: Created| {
            let job = &created.task.job;
            let now = now.as_ref().map_err(|error| StoreError::Unavailable {
                message: error.to_string().into(),
                outcome_unknown: true,
            })?;
            let home = |known: &Known| known.get(job).map(|entry| entry.home.clone());
            match home(now) == home(then) && now.open(job).is_ok() {
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
        jobs: &Known,
        create: Create,
        order: i64,
    ) -> Result<Created, StoreError> {
        let entry = jobs.open(&create.task.job)?;
        let (table, home) = (&self.table, &entry.home);
        let of = For::job(home.job.as_str(), "create");
        let new = create.task.clone();
        let (id, partition) = (new.id, home.of(&new.id));
        let task = birth(create, entry, now);
        let marks = marks(entry, None, &task);
        let Laid { row, put, .. } = layout::lay_out(task, None, marks, partition.len());
        parts::put(table, of, &partition, &id, &put, now, None).await?;
        let mut item = row.item.clone();
        item.extend(Key::new(&partition, id.as_bytes()).item());
        if order > 0 {
            item.insert(name::PLACE.into(), num(order));
        }
        let standing = match key_of(&new) {
            Some(key) => self.put_keyed(of, entry, &key, &row, item).await?,
            None => match table.put(of, item, Some(Condition::Absent)).await? {
                Conditional::Done => None,
                Conditional::Refused(Some(item)) => Some(Standing::Item(item)),
                Conditional::Refused(None) => Some(Standing::Unknown),
            },
        };
        let Some(standing) = standing else {
            let row = Arc::new(row);
            self.wrote(entry, &partition, row.clone());
            return Ok(created(&row, false));
        };
        let existing = match standing {
            Standing::Row(row) => Some(row),
            Standing::Item(item) => {
                let parts = row::parts_of(&row);
                let row = self.complete(of, home, &id, item, parts, false).await?;
                match row {
                    Some(row) => Some(Arc::new(row)),
                    None => self.load(of, home, &id).await?,
                }
            }
            Standing::Unknown => self.load(of, home, &id).await?,
        };
        // Parts are named by writes: ours may already belong to the task, if this submit had made it before.
        let in_use = existing
            .as_ref()
            .map(|row| row::refs(&row.item))
            .unwrap_or_default();
        let unused = put.into_iter().map(|part| part.name);
        let unused: Vec<_> = unused.filter(|part| !in_use.contains(part)).collect();
        parts::delete(table, of, &partition, &id, &unused).await;
        let Some(existing) = existing else {
            // It was there and is gone: the next try finds out.
            return Err(StoreError::Throttled);
        };
        if existing.task.id == id && existing.task.write == row.task.write {
            // Our own write, whose answer was lost.
            self.wrote(entry, &partition, existing.clone());
            return Ok(created(&existing, false));
        }
        if !existing.task.is_made_by(&new) {
            return Err(StoreError::Exists(existing.task.id));
        }
        Ok(created(&existing, true))
    }
}

/// What stands where a new task should go.
pub(crate) enum Standing {
    /// A task of this id.
    Item(Item),
    /// The task that has the key.
    Row(Arc<Row>),
    Unknown,
}

/// Numbers the submits of a millisecond. Ids that clients choose need not sort as they were submitted.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<(i64, i64)>);

impl Places {
    /// The first of `count` numbers.
    fn next(&self, now: Timestamp, count: usize) -> i64 {
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

fn birth(create: Create, entry: &Entry, now: Timestamp) -> Task {
    let Create {
        task,
        token,
        write,
        hand_on,
        claim_for,
    } = create;
    let hand_on = hand_on && entry.job.hands_on_at_once();
    let mut task = task.into_task(&entry.job.policy, now, token, write, hand_on);
    if let Some(worker) = claim_for {
        task.claim_at_birth(&entry.job.policy, worker);
    }
    task
}

pub(crate) fn key_of(task: &NewTask) -> Option<Arc<str>> {
    task.extras.as_ref()?.key.clone()
}

fn created(row: &Row, existed: bool) -> Created {
    Created {
        task: Box::new(row.task.clone()),
        existed,
    }
}
