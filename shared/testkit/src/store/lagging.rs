//! A due index that follows its table late, like a DynamoDB index. Each row has a lag of its own.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, StateKind, Task, TaskId, Timestamp};
use dueline_ports::{
    Applied, Command, Create, Created, DuePage, DueQuery, DueSchedulesPage, DueSchedulesQuery,
    DueTask, PutSchedule, Share, Store, StoreError, fakes::StoreLayer,
};
use tokio::time::Instant;

use super::schedule_index::ScheduleIndex;
use crate::FaultInjector;

/// How late the index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexFaults {
    /// Longest time until a write reaches the index. Half of the writes reach it within a hundredth of that time.
    pub lag_max: Duration,
    /// Shards of each job, which several readers share.
    pub shards: u32,
}

/// A store whose due tasks are read from an index that lags.
///
/// Each write reaches the index after a lag of its own. The writes of one task reach it in their order, those of
/// different tasks in any order. Until then the index has the earlier state of the task, or none. While the faults of
/// the injector are off, the index is up to date.
///
/// The index needs every write, so all hosts share one `LaggingStore`, close to the backend.
pub struct LaggingStore {
    inner: Arc<dyn Store>,
    injector: FaultInjector,
    faults: IndexFaults,
    index: Mutex<LaggingIndex>,
    schedules: Mutex<ScheduleIndex>,
}

#[derive(Default)]
struct LaggingIndex {
    rows: BTreeMap<TaskId, IndexRow>,
    writes: u64,
}

/// The entry of a task, and the writes that have not reached the index.
struct IndexRow {
    job: JobName,
    entry: Option<IndexEntry>,
    pending: VecDeque<PendingWrite>,
}

/// A write that reaches the index at `at`.
struct PendingWrite {
    at: Instant,
    number: u64,
    entry: Option<IndexEntry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct IndexEntry {
    kind: StateKind,
    trigger_at: Timestamp,
}

impl LaggingStore {
    /// An index behind `inner`, which must be empty.
    pub fn new(inner: Arc<dyn Store>, injector: FaultInjector, faults: IndexFaults) -> Self {
        let (index, schedules) = (Mutex::default(), Mutex::default());
        Self {
            inner,
            injector,
            faults,
            index,
            schedules,
        }
    }

    fn schedule_index(&self) -> MutexGuard<'_, ScheduleIndex> {
        let schedules = &self.schedules;
        schedules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self) -> MutexGuard<'_, LaggingIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an accepted write to those that have not reached the index.
    fn add_write(&self, task: &Task) {
        let mut at = Instant::now() + self.lag();
        let entry = task.trigger_at().map(|trigger_at| IndexEntry {
            kind: task.kind(),
            trigger_at,
        });
        let mut index = self.index();
        index.writes += 1;
        let number = index.writes;
        let row = index.rows.entry(task.id).or_insert_with(|| IndexRow {
            job: task.job.clone(),
            entry: None,
            pending: VecDeque::new(),
        });
        if let Some(before) = row.pending.back() {
            at = at.max(before.at);
        }
        row.pending.push_back(PendingWrite { at, number, entry });
    }

    fn lag(&self) -> Duration {
        if self.faults.lag_max.is_zero() {
            return Duration::ZERO;
        }
        // Real indexes are nearly up to date most of the time.
        let max = match self.injector.rng.below(2) {
            0 => self.faults.lag_max / 100,
            _ => self.faults.lag_max,
        };
        self.injector.random_duration(max)
    }

    fn read(&self, query: &DueQuery) -> DuePage {
        let mut index = self.index();
        let all = !self.injector.faults.is_on();
        if index.catch_up(Instant::now(), all) {
            self.injector.counters.count("index out of order");
        }
        let mut page = DuePage::default();
        let mut due: BTreeMap<&JobName, Vec<DueTask>> = BTreeMap::new();
        for (id, row) in &index.rows {
            let shard = shard(id, self.faults.shards);
            let is_covered = |share: &Share| share.covers(&row.job, shard);
            if !query.share.as_ref().is_none_or(is_covered) {
                continue;
            }
            self.count_lag(row, query.now);
            let Some(entry) = row.entry else { continue };
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
            tasks.sort_by_key(|task| {
                let is_enqueued = task.kind == StateKind::Enqueued;
                (is_enqueued, task.trigger_at, task.id)
            });
            let (mut owed, mut tasks): (Vec<_>, Vec<_>) =
                tasks.into_iter().partition(|task| task.kind.is_final());
            owed.truncate(query.owed_limit_of(job));
            page.owed.extend(owed);
            page.more |= limit(&mut tasks, query, job);
            page.tasks.extend(tasks);
        }
        page
    }

    /// Counts rows that the index returns wrongly.
    fn count_lag(&self, row: &IndexRow, now: Timestamp) {
        let Some(newest) = row.pending.back() else {
            return;
        };
        let is_due = |entry: Option<IndexEntry>| entry.is_some_and(|entry| entry.trigger_at <= now);
        let name = match (is_due(row.entry), is_due(newest.entry)) {
            (false, true) => "index row late",
            (true, _) if row.entry != newest.entry => "index row stale",
            _ => return,
        };
        self.injector.counters.count(name);
    }
}

impl LaggingIndex {
    /// Applies the writes that have reached the index, or all writes. Returns whether a write overtook an earlier one.
    fn catch_up(&mut self, now: Instant, all: bool) -> bool {
        let mut last = 0;
        for row in self.rows.values_mut() {
            while let Some(write) = row.pending.front() {
                if write.at > now && !all {
                    break;
                }
                last = last.max(write.number);
                row.entry = write.entry;
                row.pending.pop_front();
            }
        }
        // Tasks without a trigger time are not in the index.
        self.rows
            .retain(|_, row| row.entry.is_some() || !row.pending.is_empty());
        let pending = self.rows.values().filter_map(|row| row.pending.front());
        pending.map(|write| write.number).min() < Some(last)
    }
}

/// Truncates the tasks to the limits of the query. Returns whether there were more.
fn limit(tasks: &mut Vec<DueTask>, query: &DueQuery, job: &JobName) -> bool {
    let pending_limit = query.pending_limits.get(job).copied();
    let pending_max = pending_limit.unwrap_or(usize::MAX);
    let (mut pending, mut more) = (0, false);
    tasks.retain(|task| {
        pending += usize::from(task.kind.is_pending());
        let is_kept = !task.kind.is_pending() || pending <= pending_max;
        more |= !is_kept && pending_max > 0;
        is_kept
    });
    more |= tasks.len() > query.limit_per_job;
    tasks.truncate(query.limit_per_job);
    more
}

/// The shard of a task: any, but always the same.
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
        for created in answers
            .iter()
            .flatten()
            .filter(|created| created.is_written())
        {
            self.add_write(&created.task);
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
            self.add_write(&applied.task);
        }
        answers
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        Ok(self.read(&query))
    }

    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        let written: Vec<_> = puts.iter().map(|put| put.schedule.clone()).collect();
        let results = self.inner.put_schedules(puts).await;
        for (schedule, result) in written.iter().zip(&results) {
            if matches!(result, Ok(true)) {
                let at = Instant::now() + self.lag();
                self.schedule_index().add_write(schedule, at);
            }
        }
        results
    }

    async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        let all = !self.injector.faults.is_on();
        let due = self.schedule_index().due(&query, Instant::now(), all);
        let mut page = DueSchedulesPage {
            more: due.names.len() > query.limit,
            next_at: due.next_at,
            ..DueSchedulesPage::default()
        };
        for (job, name) in due.names.into_iter().take(query.limit) {
            let found = self.inner.schedule(&job, &name).await?;
            if due.is_late {
                self.injector.counters.count("schedule index late");
            }
            page.schedules.extend(found);
        }
        Ok(page)
    }
}
