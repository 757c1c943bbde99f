//! An index that another service keeps: it follows its table late, and each row at its own time.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, StateKind, Task, TaskId, Timestamp};
use dueline_ports::{
    Applied, Command, Create, Created, DuePage, DueQuery, DueTask, Store, StoreError,
    fakes::StoreLayer,
};
use tokio::time::Instant;

use crate::Site;

/// How late the index follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexFaults {
    /// Longest time until a write is seen in the index; every other one is seen within the first hundredth of it.
    pub lag_max: Duration,
    /// Partitions of each job, by which readers share it.
    pub shards: u32,
}

/// A store whose due tasks are read from an index that lags.
///
/// Each write reaches the index after a time of its own, the writes of one task in their order, those of different
/// tasks in any. Until then the index shows the task as it was, or not at all. While the faults of its site are off,
/// the index is up to date.
///
/// It must see every write, so all hosts share one, close to the backend.
pub struct LaggingStore {
    inner: Arc<dyn Store>,
    site: Site,
    faults: IndexFaults,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    rows: BTreeMap<TaskId, Row>,
    writes: u64,
}

/// A task as the index knows it, and what the index does not know yet.
struct Row {
    job: JobName,
    shown: Option<Entry>,
    coming: VecDeque<Coming>,
}

/// A write on its way.
struct Coming {
    at: Instant,
    number: u64,
    entry: Option<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    kind: StateKind,
    trigger_at: Timestamp,
}

impl LaggingStore {
    /// An index behind `inner`, which must be empty.
    pub fn new(inner: Arc<dyn Store>, site: Site, faults: IndexFaults) -> Self {
        let index = Mutex::default();
        Self {
            inner,
            site,
            faults,
            index,
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write was accepted and is on its way to the index.
    fn written(&self, task: &Task) {
        let mut at = Instant::now() + self.lag();
        let entry = task.state.trigger_at().map(|trigger_at| Entry {
            kind: task.kind(),
            trigger_at,
        });
        let mut index = self.index();
        index.writes += 1;
        let number = index.writes;
        let row = index.rows.entry(task.id).or_insert_with(|| Row {
            job: task.job.clone(),
            shown: None,
            coming: VecDeque::new(),
        });
        if let Some(before) = row.coming.back() {
            at = at.max(before.at);
        }
        row.coming.push_back(Coming { at, number, entry });
    }

    fn lag(&self) -> Duration {
        if self.faults.lag_max.is_zero() {
            return Duration::ZERO;
        }
        // Most indexes are nearly up to date nearly always.
        let max = match self.site.rng.below(2) {
            0 => self.faults.lag_max / 100,
            _ => self.faults.lag_max,
        };
        self.site.up_to(max)
    }

    fn read(&self, query: &DueQuery) -> DuePage {
        let mut index = self.index();
        let everything = !self.site.faults.is_on();
        if index.catch_up(Instant::now(), everything) {
            self.site.counters.count("index out of order");
        }
        let mut page = DuePage::default();
        let mut due: BTreeMap<&JobName, Vec<DueTask>> = BTreeMap::new();
        for (id, row) in &index.rows {
            let shard = shard(id, self.faults.shards);
            let is_mine = |share: &dueline_ports::Share| share.covers(&row.job, shard);
            if !query.share.as_ref().is_none_or(is_mine) {
                continue;
            }
            self.count_lag(row, query.now);
            let Some(entry) = row.shown else { continue };
            if entry.trigger_at > query.now {
                page.next_at = page.next_at.into_iter().chain([entry.trigger_at]).min();
                continue;
            }
            due.entry(&row.job).or_default().push(DueTask {
                job: row.job.clone(),
                id: *id,
                kind: entry.kind,
                trigger_at: entry.trigger_at,
            });
        }
        for (job, mut tasks) in due {
            tasks.sort_by_key(|task| (task.trigger_at, task.id));
            page.more |= limit(&mut tasks, query, job);
            page.tasks.extend(tasks);
        }
        page
    }

    /// Counts what the reader is told wrong.
    fn count_lag(&self, row: &Row, now: Timestamp) {
        let Some(newest) = row.coming.back() else {
            return;
        };
        let is_due = |entry: Option<Entry>| entry.is_some_and(|entry| entry.trigger_at <= now);
        let name = match (is_due(row.shown), is_due(newest.entry)) {
            (false, true) => "index row late",
            (true, _) if row.shown != newest.entry => "index row stale",
            _ => return,
        };
        self.site.counters.count(name);
    }
}

impl Index {
    /// Takes in what has arrived; true when something arrived before something that was written earlier.
    fn catch_up(&mut self, now: Instant, everything: bool) -> bool {
        let mut last = 0;
        for row in self.rows.values_mut() {
            while let Some(coming) = row.coming.front() {
                if coming.at > now && !everything {
                    break;
                }
                last = last.max(coming.number);
                row.shown = coming.entry;
                row.coming.pop_front();
            }
        }
        // What has ended is in no index.
        self.rows
            .retain(|_, row| row.shown.is_some() || !row.coming.is_empty());
        let coming = self.rows.values().filter_map(|row| row.coming.front());
        coming.map(|coming| coming.number).min() < Some(last)
    }
}

/// Leaves as many tasks as the query wants; true when there were more.
fn limit(tasks: &mut Vec<DueTask>, query: &DueQuery, job: &JobName) -> bool {
    let wanted = query.pending_limits.get(job).copied();
    let pending_max = wanted.unwrap_or(usize::MAX);
    let (mut pending, mut held_back) = (0, false);
    tasks.retain(|task| {
        pending += usize::from(task.kind.is_pending());
        let is_kept = !task.kind.is_pending() || pending <= pending_max;
        held_back |= !is_kept && pending_max > 0;
        is_kept
    });
    held_back |= tasks.len() > query.limit_per_job;
    tasks.truncate(query.limit_per_job);
    held_back
}

/// Any partition, as long as it is always the same one.
fn shard(id: &TaskId, shards: u32) -> u32 {
    let mut hash = DefaultHasher::new();
    hash.write(id.as_bytes());
    let shard = hash.finish() % u64::from(shards.max(1));
    u32::try_from(shard).unwrap_or(0)
}

#[async_trait]
impl StoreLayer for LaggingStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let answers = self.inner.create(now, new).await;
        for created in answers.iter().flatten().filter(|created| !created.existed) {
            self.written(&created.task);
        }
        answers
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let answers = self.inner.apply(now, commands).await;
        for applied in answers.iter().flatten().filter(|applied| !applied.repeated) {
            self.written(&applied.task);
        }
        answers
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        Ok(self.read(&query))
    }
}
