//! `changes`: finds what has changed in a job by reading it, while a client asks.
//!
//! No process writes anything for those who watch. The process that is asked reads the entries of the job in the due index,
//! which are its unfinished tasks, and the tasks whose ids are of the last seconds; compares them with what it found before;
//! and reads those tasks themselves that have come or gone. See ADR 0021 for what this finds and what it costs.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use dueline_domain::{
    ChangeKind, JobName, ShownTask, StateKind, Task, TaskId, TaskNews, Timestamp,
};
use dueline_ports::{ChangeFeed, ChangePage, ChangeQuery, StoreError};
use tokio::time::{Duration, Instant, sleep_until};

use crate::{
    attr::{bytes, get_num},
    calls::{CallContext, ItemKey, QueryRequest, SortRange},
    jobs::JobEntry,
    row::{self, BlobMap},
    schema,
    store::DynamoStore,
};

/// Time between two reads of a job. A read that takes long is followed by a pause of ten times its length.
const READ_EVERY: Duration = Duration::from_secs(1);
const PAUSE_FACTOR: u32 = 10;
/// Most unfinished tasks of a watched job: their ids are kept in memory and compared at each read.
const OPEN_MAX: usize = 20_000;
/// Unfinished tasks up to which each of them is read each time, so that its moves are reported as well.
const FEW: usize = 100;
/// How far back the ids of new tasks are read: clocks of hosts may differ by so much, and a write may take so long.
const OVERLAP: Duration = Duration::from_secs(10);
/// A task that is older than this when it appears was redriven, not posted.
const OLD: Duration = Duration::from_secs(60);

/// What this process knows of the jobs that are watched.
#[derive(Debug)]
pub(crate) struct ChangeReads {
    feed: ChangeFeed,
    jobs: Mutex<HashMap<JobName, Arc<tokio::sync::Mutex<KnownTasks>>>>,
}

impl Default for ChangeReads {
    fn default() -> Self {
        Self {
            feed: ChangeFeed::new(fastrand::u64(..)),
            jobs: Mutex::default(),
        }
    }
}

/// The tasks of a watched job as the latest read has found them.
#[derive(Debug, Default)]
struct KnownTasks {
    /// The generation of the job; another one is another job.
    generation: Option<Arc<str>>,
    next_read: Option<Instant>,
    tasks: HashMap<TaskId, KnownTask>,
}

#[derive(Clone, Copy, Debug, Default)]
struct KnownTask {
    /// A hash of what was reported of it; `None` for a task that is older than the watch.
    reported: Option<u64>,
    ended: bool,
}

/// What one read has found.
struct Found {
    /// In the due index.
    open: HashSet<TaskId>,
    /// With an id of the last seconds.
    recent: HashSet<TaskId>,
}

impl DynamoStore {
    /// Cancel safe.
    pub(crate) async fn changes(&self, query: ChangeQuery) -> Result<ChangePage, StoreError> {
        let begun = Instant::now();
        let until = begun + query.wait;
        let mut query = query;
        let asked_at = query.now;
        loop {
            let jobs = self.jobs(false).await?;
            let jobs = self.jobs_including(jobs, &query.job).await?;
            let entry = jobs.get(&query.job).cloned();
            let entry = entry.ok_or_else(|| StoreError::no_job(&query.job))?;
            query.now = asked_at.after(begun.elapsed());
            let next_read = self.read_changes(&entry, query.now).await?;
            let page = self.change_reads.feed.look(&query)?;
            let is_over = query.after.is_none() || page.gap || !page.changes.is_empty();
            if is_over || Instant::now() >= until {
                return Ok(page);
            }
            sleep_until(next_read.min(until)).await;
        }
    }

    /// Reads the job if it is time to. One caller reads for all that watch the job. The answer says when the next read is due.
    async fn read_changes(&self, entry: &JobEntry, now: Timestamp) -> Result<Instant, StoreError> {
        let (reads, job) = (&self.change_reads, &entry.partitions.job);
        let is_new = reads.feed.watch(job, now)?;
        let known = reads.known(job, is_new);
        let mut known = known.lock().await;
        if known.generation.as_ref() != Some(&entry.partitions.generation) {
            if known.generation.is_some() {
                reads.feed.forget(job);
                reads.feed.watch(job, now)?;
            }
            *known = KnownTasks::default();
        }
        let begun = Instant::now();
        if let Some(next) = known.next_read.filter(|next| begun < *next) {
            return Ok(next);
        }
        let found = self.find(entry, now).await?;
        let news = if known.generation.is_none() {
            known.tasks = self.first_look(entry, &found).await?;
            known.generation = Some(entry.partitions.generation.clone());
            Vec::new()
        } else {
            self.compare(entry, now, &found, &mut known.tasks).await?
        };
        reads.feed.publish(news);
        let took = begun.elapsed();
        let next = Instant::now() + READ_EVERY.max(took * PAUSE_FACTOR);
        known.next_read = Some(next);
        Ok(next)
    }

    async fn find(&self, entry: &JobEntry, now: Timestamp) -> Result<Found, StoreError> {
        let partitions = &entry.partitions;
        let context = CallContext::of_job(partitions.job.as_str(), "changes");
        let mut open = HashSet::new();
        let mut read = self.lane_partitions(context, entry).await?;
        read.extend((0..entry.shards).map(|shard| partitions.due(shard)));
        for partition in read {
            let request = QueryRequest {
                partition: &partition,
                due: true,
                attributes: &[schema::PK, schema::SK],
                ..QueryRequest::default()
            };
            let items = self.table.query_all(context, request, OPEN_MAX + 1).await?;
            open.extend(items.iter().filter_map(|item| ItemKey::of(item)?.task()));
            if open.len() > OPEN_MAX {
                return Err(StoreError::TooManyWatched {
                    what: "unfinished tasks",
                    max: OPEN_MAX,
                });
            }
        }
        let (first, last) = (now.millis() - millis(OVERLAP), now.millis() + millis(OLD));
        let mut recent = HashSet::new();
        for slot in 0..partitions.slots {
            let request = QueryRequest {
                partition: &partitions.tasks(slot),
                range: SortRange::Between(bytes(id_of(first)), bytes(id_of(last))),
                attributes: &[schema::PK, schema::SK],
                consistent: true,
                ..QueryRequest::default()
            };
            let items = self.table.query_all(context, request, OPEN_MAX).await?;
            recent.extend(items.iter().filter_map(|item| ItemKey::of(item)?.task()));
        }
        Ok(Found { open, recent })
    }

    /// The tasks that are there before anybody watches. Those of the last seconds that are not in the index may have ended, or
    /// may be too new for it.
    async fn first_look(
        &self,
        entry: &JobEntry,
        found: &Found,
    ) -> Result<HashMap<TaskId, KnownTask>, StoreError> {
        let mut known: HashMap<_, _> = found
            .open
            .iter()
            .map(|id| (*id, KnownTask::default()))
            .collect();
        let unclear: Vec<TaskId> = found.recent.difference(&found.open).copied().collect();
        for (id, (task, shown)) in self.shown_tasks(entry, &unclear).await? {
            let ended = task.kind().is_final();
            let reported = Some(shown.fingerprint());
            known.insert(id, KnownTask { reported, ended });
        }
        Ok(known)
    }

    /// What has changed since the last read. Also brings `known` up to date.
    async fn compare(
        &self,
        entry: &JobEntry,
        now: Timestamp,
        found: &Found,
        known: &mut HashMap<TaskId, KnownTask>,
    ) -> Result<Vec<TaskNews>, StoreError> {
        let here = |id: &TaskId| found.open.contains(id) || found.recent.contains(id);
        let new = found.open.iter().chain(&found.recent);
        let new: HashSet<TaskId> = new.filter(|id| !known.contains_key(id)).copied().collect();
        let are_few = found.open.len() + new.len() <= FEW;
        let mut to_read: Vec<TaskId> = new.iter().copied().collect();
        to_read.extend(known.iter().filter_map(|(id, task)| {
            let has_gone = !task.ended && !found.open.contains(id);
            let may_have_moved = are_few && found.open.contains(id);
            (has_gone || may_have_moved).then_some(*id)
        }));
        // In the order of the ids, so that tasks that came in a row are reported in their order.
        to_read.sort_unstable();
        let tasks = self.shown_tasks(entry, &to_read).await?;
        let mut news = Vec::new();
        for id in to_read {
            let Some((task, shown)) = tasks.get(&id) else {
                if known.remove(&id).is_some() {
                    news.push(TaskNews::removed(entry.partitions.job.clone(), id, now));
                }
                continue;
            };
            let reported = shown.fingerprint();
            let is_new = new.contains(&id);
            if is_new && task.created_at.after(OLD) >= now {
                let posted = TaskNews::posted(task);
                news.push(with_shown(posted, shown));
                if task.kind().is_final() {
                    news.extend(TaskNews::since(None, task).map(|news| with_shown(news, shown)));
                }
            } else if is_new
                || known
                    .get(&id)
                    .is_some_and(|task| task.reported != Some(reported))
            {
                let first_look =
                    !is_new && known.get(&id).is_some_and(|task| task.reported.is_none());
                // Of a task that was there before anybody watched, only the end is news at the first look.
                if !first_look || task.kind().is_final() {
                    news.extend(TaskNews::since(None, task).map(|news| with_shown(news, shown)));
                }
            }
            let ended = task.kind().is_final();
            let reported = Some(reported);
            known.insert(id, KnownTask { reported, ended });
        }
        // A finished task stays known while it could be taken for a new one.
        known.retain(|id, task| !task.ended || here(id));
        Ok(news)
    }

    /// These tasks without their payloads, results and errors, and how each is shown.
    async fn shown_tasks(
        &self,
        entry: &JobEntry,
        ids: &[TaskId],
    ) -> Result<HashMap<TaskId, (Task, ShownTask)>, StoreError> {
        let partitions = &entry.partitions;
        let context = CallContext::of_job(partitions.job.as_str(), "changes");
        let keys = ids
            .iter()
            .map(|id| ItemKey::new(partitions.of_task(id), id.as_bytes()));
        let keys: Vec<_> = keys.collect();
        let mut tasks = HashMap::new();
        for item in self.table.get_many(context, &keys, &[], true).await? {
            let Some(id) = ItemKey::of(&item).and_then(|key| key.task()) else {
                continue;
            };
            let runs = runs(&item);
            match row::decode(&partitions.job, id, item, &BlobMap::new(), true) {
                Ok(row) => {
                    let mut shown = ShownTask::of(&row.task);
                    // The records of past runs may be blobs, which were not read; their number is in the item.
                    shown.attempt = match shown.state {
                        StateKind::Processing | StateKind::Succeeded => Some(runs),
                        _ => runs.checked_sub(1),
                    };
                    tasks.insert(id, (row.task, shown));
                }
                Err(invalid) => drop(self.report_unreadable(context, &id, invalid)),
            }
        }
        Ok(tasks)
    }
}

impl ChangeReads {
    /// What is known of a job; nothing if it was not watched for a while. What was known of jobs that are not watched any
    /// more is dropped.
    fn known(&self, job: &JobName, is_new: bool) -> Arc<tokio::sync::Mutex<KnownTasks>> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if is_new {
            jobs.remove(job);
            jobs.retain(|job, _| self.feed.keeps(job));
        }
        jobs.entry(job.clone()).or_default().clone()
    }
}

fn with_shown(news: TaskNews, shown: &ShownTask) -> TaskNews {
    debug_assert_ne!(news.kind, ChangeKind::Removed);
    TaskNews {
        shown: Some(shown.clone()),
        ..news
    }
}

/// How many runs of a task are over.
fn runs(item: &crate::attr::Item) -> u32 {
    let kept = match item.get(row::name::HISTORY) {
        Some(aws_sdk_dynamodb::types::AttributeValue::L(list)) => list.len(),
        _ => 0,
    };
    let dropped = get_num(item, row::name::DROPPED).ok().flatten();
    let dropped = dropped.and_then(|dropped| u32::try_from(dropped).ok());
    u32::try_from(kept).unwrap_or(0) + dropped.unwrap_or(0)
}

/// The lowest id that a program can make at this time.
fn id_of(millis: i64) -> [u8; 16] {
    let mut id = [0; 16];
    let millis = u64::try_from(millis).unwrap_or(0).to_be_bytes();
    id[..6].copy_from_slice(&millis[2..]);
    id
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
