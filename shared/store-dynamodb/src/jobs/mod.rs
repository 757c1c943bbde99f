//! Job definitions: cached in memory, and read again when a counter shows that one of them has changed.

mod delete;
mod put;
mod shards;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use dueline_domain::{Job, JobName, Task, TaskId};
use dueline_ports::StoreError;
use tokio::time::{Duration, Instant};

use crate::{
    attr::{InvalidData, Item, get_bytes, get_flag, get_num, get_text, required},
    calls::{CallContext, ItemKey, QueryRequest},
    schema::{self, JobPartitions},
    store::DynamoStore,
};

pub(crate) use shards::SubmitRates;

/// The definition as JSON.
const RECORD: &str = "j";
/// The generation: a random name for each creation, so that a job with the name of a deleted one shares nothing with
/// it.
const GENERATION: &str = "g";
/// Shards of the due index.
const SHARDS: &str = "ds";
/// The version of the definition; each change increments it.
const VERSION: &str = "n";
/// Set while the job is being deleted.
const DELETING: &str = "del";
/// Attribute of the counter item: the number of changes of all definitions.
const CHANGES: &str = "n";

/// A definition and the partitions of its tasks.
#[derive(Clone, Debug)]
pub(crate) struct JobEntry {
    pub(crate) job: Arc<Job>,
    pub(crate) partitions: JobPartitions,
    pub(crate) shards: u32,
    /// The definition as stored, so that fields of newer programs can be kept.
    record: Arc<str>,
    version: i64,
    deleting: bool,
}

impl JobEntry {
    /// The partition of the index for a new task.
    pub(crate) fn due_key(&self, id: &TaskId) -> String {
        self.partitions.due_of(id, self.shards)
    }

    /// The partition of the index for a task that waits in a lane.
    pub(crate) fn lane_key(&self, task: &Task) -> Option<String> {
        let lane = self.job.lane_of(task)?;
        Some(self.partitions.due_in_lane(lane, task.priority))
    }
}

/// A snapshot of all definitions.
#[derive(Debug, Default)]
pub(crate) struct JobSnapshot {
    changes: i64,
    by_name: BTreeMap<JobName, Arc<JobEntry>>,
    /// Versions of the definitions that cannot be decoded.
    unreadable: BTreeMap<String, i64>,
}

impl JobSnapshot {
    pub(crate) fn get(&self, name: &JobName) -> Option<&Arc<JobEntry>> {
        self.by_name.get(name)
    }

    /// A job that accepts new tasks: it is not being deleted.
    pub(crate) fn open(&self, name: &JobName) -> Result<&Arc<JobEntry>, StoreError> {
        let entry = self.get(name).filter(|entry| !entry.deleting);
        entry.ok_or_else(|| StoreError::no_job(name))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<JobEntry>> {
        self.by_name.values()
    }
}

/// How much older than their time to live definitions may be for calls about existing tasks.
const STALE_MAX: Duration = Duration::from_secs(10);
/// How long such a call waits for newer definitions.
const REFRESH_WAIT_MAX: Duration = Duration::from_millis(250);
/// Shortest time between two reads of the definitions because of an unknown job.
const MISS_REFRESH_MIN: Duration = Duration::from_millis(200);

/// The cached definitions.
#[derive(Debug)]
pub(crate) struct JobCache {
    snapshot: RwLock<Option<(Instant, Arc<JobSnapshot>)>>,
    /// Held by the call that reads the definitions; concurrent calls wait and use its result.
    refreshing: tokio::sync::Mutex<()>,
    pub(crate) ttl: Duration,
}

impl JobCache {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self {
            snapshot: RwLock::default(),
            refreshing: tokio::sync::Mutex::default(),
            ttl,
        }
    }

    /// The latest snapshot and when its read began.
    fn latest(&self) -> Option<(Instant, Arc<JobSnapshot>)> {
        self.snapshot
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Lets the snapshot expire. It can still be used as a stale one while DynamoDB does not answer.
    fn expire(&self) {
        let mut snapshot = self
            .snapshot
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((at, _)) = &mut *snapshot {
            *at = at.checked_sub(self.ttl).unwrap_or(*at);
        }
    }

    fn store(&self, read_at: Instant, snapshot: Arc<JobSnapshot>) {
        *self
            .snapshot
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some((read_at, snapshot));
    }
}

impl DynamoStore {
    /// The definitions, no older than their time to live. With `fresh` they are read after the call.
    pub(crate) async fn jobs(&self, fresh: bool) -> Result<Arc<JobSnapshot>, StoreError> {
        let called_at = Instant::now();
        let is_recent = |at: Instant| {
            if fresh {
                at >= called_at
            } else {
                called_at.saturating_duration_since(at) < self.job_cache.ttl
            }
        };
        if let Some((at, snapshot)) = self.job_cache.latest()
            && is_recent(at)
        {
            return Ok(snapshot);
        }
        let _refreshing = self.job_cache.refreshing.lock().await;
        let before = self.job_cache.latest();
        if let Some((at, snapshot)) = &before
            && (is_recent(*at) || *at > called_at)
        {
            return Ok(snapshot.clone());
        }
        let read_at = Instant::now();
        let context = CallContext::of_table("jobs");
        // The counter is read before the definitions, so a change in between is noticed by the next read.
        let counter = ItemKey::new(schema::META, schema::META_JOBS);
        let counter = self
            .table
            .get(context, &counter, true)
            .await?
            .unwrap_or_default();
        let invalid = |invalid: InvalidData| invalid.into_error("the counter of definitions");
        let changes = get_num(&counter, CHANGES).map_err(invalid)?.unwrap_or(0);
        let snapshot = match before {
            Some((_, snapshot)) if snapshot.changes == changes => snapshot,
            _ => Arc::new(self.read_jobs(changes).await?),
        };
        self.job_cache.store(read_at, snapshot.clone());
        Ok(snapshot)
    }

    /// Reads the definitions after a change by this process. An error does not affect the change, which is stored; the
    /// definitions are read again by the next call.
    async fn refresh_jobs(&self) {
        if let Err(error) = self.jobs(true).await {
            tracing::debug!(%error, "failed to read changed definitions back");
            self.job_cache.expire();
        }
    }

    /// The definitions, or stale ones while the table is throttled or slow. For calls about existing tasks, which need
    /// not wait for newer definitions. Not for submits, which must notice that a job is being deleted.
    pub(crate) async fn jobs_or_stale(&self) -> Result<Arc<JobSnapshot>, StoreError> {
        let stale = self.job_cache.latest();
        let stale = stale.filter(|(at, _)| at.elapsed() < self.job_cache.ttl + STALE_MAX);
        let Some((_, stale)) = stale else {
            return self.jobs(false).await;
        };
        match tokio::time::timeout(REFRESH_WAIT_MAX, self.jobs(false)).await {
            Ok(Err(StoreError::Throttled)) | Err(_) => Ok(stale),
            Ok(answer) => answer,
        }
    }

    /// The definitions, read again if they lack this job: another process may just have created it. Unknown names cost
    /// no more than a few reads a second.
    pub(crate) async fn jobs_including(
        &self,
        snapshot: Arc<JobSnapshot>,
        name: &JobName,
    ) -> Result<Arc<JobSnapshot>, StoreError> {
        let read_at = self.job_cache.latest().map(|(at, _)| at);
        let is_new =
            read_at.is_some_and(|at| at.elapsed() < MISS_REFRESH_MIN.min(self.job_cache.ttl));
        if snapshot.get(name).is_some() || is_new {
            return Ok(snapshot);
        }
        self.jobs(true).await
    }

    async fn read_jobs(&self, changes: i64) -> Result<JobSnapshot, StoreError> {
        let request = QueryRequest {
            partition: schema::JOBS,
            consistent: true,
            ..QueryRequest::default()
        };
        let items = self
            .table
            .query_all(CallContext::of_table("jobs"), request, usize::MAX)
            .await?;
        let (mut by_name, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
        for item in &items {
            match self.entry(item) {
                Ok(entry) => drop(by_name.insert(entry.job.name.clone(), Arc::new(entry))),
                // An unreadable definition does not hide the others.
                Err(error) => {
                    let name = get_bytes(item, schema::SK).ok().flatten();
                    let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
                    tracing::error!(job.name = name, %error, "unreadable job definition");
                    let version = get_num(item, VERSION).ok().flatten();
                    unreadable.insert(name, version.unwrap_or_default());
                }
            }
        }
        Ok(JobSnapshot {
            changes,
            by_name,
            unreadable,
        })
    }

    fn entry(&self, item: &Item) -> Result<JobEntry, InvalidData> {
        let name = required(get_bytes(item, schema::SK)?, schema::SK)?;
        let name = std::str::from_utf8(name).map_err(InvalidData::new)?;
        let json = required(get_text(item, RECORD)?, RECORD)?;
        let job = dueline_records::job_from_json(name, json).map_err(InvalidData::new)?;
        let generation = required(get_text(item, GENERATION)?, GENERATION)?.into();
        let shards = get_num(item, SHARDS)?.unwrap_or(1);
        let partitions = JobPartitions {
            job: job.name.clone(),
            generation,
            slots: self.slots,
        };
        Ok(JobEntry {
            job: Arc::new(job),
            partitions,
            shards: u32::try_from(shards)
                .unwrap_or(1)
                .clamp(1, schema::SHARDS_MAX),
            record: json.into(),
            version: required(get_num(item, VERSION)?, VERSION)?,
            deleting: get_flag(item, DELETING),
        })
    }

    pub(crate) async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        let jobs = self.jobs_or_stale().await?;
        Ok(jobs.get(name).map(|entry| entry.job.clone()))
    }

    pub(crate) async fn all_jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        let jobs = match self.jobs(false).await {
            // Stale definitions are an answer only while the table is throttled, not when it cannot be reached.
            Err(StoreError::Throttled) => self.jobs_or_stale().await?,
            answer => answer?,
        };
        Ok(jobs.iter().map(|entry| entry.job.clone()).collect())
    }
}
