//! Job definitions: kept in memory, and looked after by one counter that every change raises.

mod delete;
mod put;
mod shards;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use dueline_domain::{Job, JobName, TaskId};
use dueline_ports::StoreError;
use tokio::time::{Duration, Instant};

use crate::{
    attr::{Bad, Item, get_bytes, get_flag, get_num, get_text, need},
    calls::{Ask, For, Key},
    schema::{self, Home},
    store::Inner,
};

pub(crate) use shards::Rates;

/// The definition as JSON.
const RECORD: &str = "j";
/// The generation: new with each creation, so that a job of an old name is a new job.
const GENERATION: &str = "g";
/// Shards of the due index.
const SHARDS: &str = "ds";
/// Raised by each change.
const VERSION: &str = "n";
/// Set while the job is being deleted.
const DELETING: &str = "del";
/// The counter of changes, of all jobs.
const CHANGES: &str = "n";

/// A definition and where its tasks are.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) job: Arc<Job>,
    pub(crate) home: Home,
    pub(crate) shards: u32,
    /// The definition as it is stored.
    record: Arc<str>,
    version: i64,
    deleting: bool,
}

impl Entry {
    /// The partition of the index of a new task.
    pub(crate) fn due_key(&self, id: &TaskId) -> String {
        self.home.due_of(id, self.shards)
    }
}

/// The definitions as of a moment.
#[derive(Debug, Default)]
pub(crate) struct Known {
    changes: i64,
    by_name: BTreeMap<JobName, Arc<Entry>>,
    /// Versions of definitions that make no sense here.
    unreadable: BTreeMap<String, i64>,
}

impl Known {
    pub(crate) fn get(&self, name: &JobName) -> Option<&Arc<Entry>> {
        self.by_name.get(name)
    }

    /// A job that takes new tasks.
    pub(crate) fn open(&self, name: &JobName) -> Result<&Arc<Entry>, StoreError> {
        let entry = self.get(name).filter(|entry| !entry.deleting);
        entry.ok_or_else(|| StoreError::no_job(name))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.by_name.values()
    }
}

/// How old definitions may be for those who already have a task, beyond the usual.
const OLD_MAX: Duration = Duration::from_secs(10);
/// How long those wait for newer ones.
const PATIENCE: Duration = Duration::from_millis(250);
/// Shortest time between two looks for a job that is not there.
const MISS_MIN: Duration = Duration::from_millis(200);

/// The definitions at hand.
#[derive(Debug)]
pub(crate) struct Jobs {
    known: RwLock<Option<(Instant, Arc<Known>)>>,
    /// Only one asks at a time; the others take what it found.
    asking: tokio::sync::Mutex<()>,
    pub(crate) ttl: Duration,
}

impl Jobs {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self {
            known: RwLock::default(),
            asking: tokio::sync::Mutex::default(),
            ttl,
        }
    }

    fn at_hand(&self) -> Option<(Instant, Arc<Known>)> {
        self.known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What is at hand is no longer good, but better than nothing while nobody can be asked.
    fn expire(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, _)) = &mut *known {
            *at = at.checked_sub(self.ttl).unwrap_or(*at);
        }
    }

    fn keep(&self, asked_at: Instant, known: Arc<Known>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some((asked_at, known));
    }
}

impl Inner {
    /// The definitions, no older than the time they may be kept; `fresh` asks at any rate.
    pub(crate) async fn jobs(&self, fresh: bool) -> Result<Arc<Known>, StoreError> {
        let called_at = Instant::now();
        let good = |at: Instant| {
            if fresh {
                at >= called_at
            } else {
                called_at.saturating_duration_since(at) < self.jobs.ttl
            }
        };
        if let Some((at, known)) = self.jobs.at_hand()
            && good(at)
        {
            return Ok(known);
        }
        let _asking = self.jobs.asking.lock().await;
        let before = self.jobs.at_hand();
        if let Some((at, known)) = &before
            && (good(*at) || *at > called_at)
        {
            return Ok(known.clone());
        }
        let asked_at = Instant::now();
        let of = For::all("jobs");
        // The counter is read before the definitions: what changes in between is seen the next time.
        let counter = Key::new(schema::META, schema::META_JOBS);
        let counter = self
            .table
            .get(of, &counter, true)
            .await?
            .unwrap_or_default();
        let bad = |bad: Bad| bad.of("the counter of definitions");
        let changes = get_num(&counter, CHANGES).map_err(bad)?.unwrap_or(0);
        let known = match before {
            Some((_, known)) if known.changes == changes => known,
            _ => Arc::new(self.read_jobs(changes).await?),
        };
        self.jobs.keep(asked_at, known.clone());
        Ok(known)
    }

    /// After a change that this process made: it knows at once, or as soon as it can ask. The change itself is done.
    async fn know_anew(&self) {
        if let Err(error) = self.jobs(true).await {
            tracing::debug!(%error, "failed to read changed definitions back");
            self.jobs.expire();
        }
    }

    /// The definitions, or those of before while they cannot be had soon: whoever already has a task need not wait for
    /// them. Not for submits, which must see that a job is being deleted.
    pub(crate) async fn jobs_as_known(&self) -> Result<Arc<Known>, StoreError> {
        let recent = self.jobs.at_hand();
        let recent = recent.filter(|(at, _)| at.elapsed() < self.jobs.ttl + OLD_MAX);
        let Some((_, known)) = recent else {
            return self.jobs(false).await;
        };
        match tokio::time::timeout(PATIENCE, self.jobs(false)).await {
            Ok(Err(StoreError::Throttled)) | Err(_) => Ok(known),
            Ok(answer) => answer,
        }
    }

    /// The definitions again, if they do not have this job: another process may just have made it. Names that nobody
    /// made cost no more than a few reads a second.
    pub(crate) async fn jobs_with(
        &self,
        known: Arc<Known>,
        name: &JobName,
    ) -> Result<Arc<Known>, StoreError> {
        let asked_at = self.jobs.at_hand().map(|(at, _)| at);
        let is_new = asked_at.is_some_and(|at| at.elapsed() < MISS_MIN.min(self.jobs.ttl));
        if known.get(name).is_some() || is_new {
            return Ok(known);
        }
        self.jobs(true).await
    }

    async fn read_jobs(&self, changes: i64) -> Result<Known, StoreError> {
        let ask = Ask {
            partition: schema::JOBS,
            consistent: true,
            ..Ask::default()
        };
        let items = self
            .table
            .query_all(For::all("jobs"), ask, usize::MAX)
            .await?;
        let (mut by_name, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
        for item in &items {
            match self.entry(item) {
                Ok(entry) => drop(by_name.insert(entry.job.name.clone(), Arc::new(entry))),
                // It does not hide the others.
                Err(error) => {
                    let name = get_bytes(item, schema::SK).ok().flatten();
                    let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
                    tracing::error!(job.name = name, %error, "unreadable job definition");
                    let version = get_num(item, VERSION).ok().flatten();
                    unreadable.insert(name, version.unwrap_or_default());
                }
            }
        }
        Ok(Known {
            changes,
            by_name,
            unreadable,
        })
    }

    fn entry(&self, item: &Item) -> Result<Entry, Bad> {
        let name = need(get_bytes(item, schema::SK)?, schema::SK)?;
        let name = std::str::from_utf8(name).map_err(Bad::new)?;
        let json = need(get_text(item, RECORD)?, RECORD)?;
        let job = dueline_records::job_from_json(name, json).map_err(Bad::new)?;
        let generation = need(get_text(item, GENERATION)?, GENERATION)?.into();
        let shards = get_num(item, SHARDS)?.unwrap_or(1);
        let home = Home {
            job: job.name.clone(),
            generation,
            slots: self.slots,
        };
        Ok(Entry {
            job: Arc::new(job),
            home,
            shards: u32::try_from(shards)
                .unwrap_or(1)
                .clamp(1, schema::SHARDS_MAX),
            record: json.into(),
            version: need(get_num(item, VERSION)?, VERSION)?,
            deleting: get_flag(item, DELETING),
        })
    }

    pub(crate) async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        let jobs = self.jobs_as_known().await?;
        Ok(jobs.get(name).map(|entry| entry.job.clone()))
    }

    pub(crate) async fn all_jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        let jobs = match self.jobs(false).await {
            // Only where DynamoDB answers, and has no time: what is old must not pass for fresh.
            Err(StoreError::Throttled) => self.jobs_as_known().await?,
            answer => answer?,
        };
        Ok(jobs.iter().map(|entry| entry.job.clone()).collect())
    }
}
