//! The store: sends writes to the writer thread and reads to the readers.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use async_trait::async_trait;
use dueline_domain::{
    Job, JobName, Schedule, ScheduleName, Task, TaskAddress, TaskEnd, TaskId, TaskRef, Timestamp,
    WorkerId,
};
use dueline_ports::{
    Applied, ChangeFeed, ChangePage, ChangeQuery, Command, Create, Created, DuePage, DueQuery,
    DueSchedulesPage, DueSchedulesQuery, Edge, EdgePage, EdgeQuery, FamilyStore, JobStats,
    JobStore, LanePage, LaneQuery, ListQuery, LocalQuotas, OwnedTask, Page, Places, Pruned, PutJob,
    PutSchedule, QuotaSwap, QuotaWrite, ScheduleQuery, ScheduleStore, StoreError, TakePlaces,
    TaskStore, WorkerRecord, WorkerStore,
};

use crate::{
    jobs::{JobEntry, SharedJobs},
    lock::{self, OwnerLock},
    open::{self, Durability, OpenError, SqliteOptions},
    reader::{self, ReaderHandle},
    writer::{self, ItemError, WriteHealth, Writer, WriterHandle},
};

/// Number of connections that read for clients.
const READERS: usize = 2;

/// The task store on one SQLite file.
///
/// The process owns the file until the store is dropped. Dropping the store waits until the writer has committed all
/// waiting requests.
pub struct SqliteStore {
    writer: Option<WriterHandle>,
    reader: Option<ReaderHandle>,
    /// A separate reader for the services, so that long lists of clients do not delay the scan for due tasks.
    scanner: Option<ReaderHandle>,
    jobs: Arc<SharedJobs>,
    quotas: LocalQuotas,
    health: Arc<WriteHealth>,
    feed: Arc<ChangeFeed>,
    options: SqliteOptions,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _lock: OwnerLock,
}

impl SqliteStore {
    /// Opens a file; creates it if it is missing.
    pub fn open(options: SqliteOptions) -> Result<Self, OpenError> {
        let lock = lock::lock(&options.path)?;
        let options = SqliteOptions {
            path: lock.path.clone(),
            ..options
        };
        let (jobs, health) = <(Arc<SharedJobs>, Arc<WriteHealth>)>::default();
        // The store exists from here on, so that its drop ends connections and threads before the lock is released,
        // whichever of the following steps fails.
        let mut store = Self {
            writer: None,
            reader: None,
            scanner: None,
            jobs: jobs.clone(),
            quotas: LocalQuotas::default(),
            health: health.clone(),
            feed: Arc::default(),
            options: options.clone(),
            threads: Mutex::default(),
            _lock: lock,
        };
        let db = open::open_writer(&options)?;
        let readers = (0..READERS)
            .map(|_| open::open_reader(&options))
            .collect::<Result<_, _>>()?;
        let scanner = vec![open::open_reader(&options)?];
        let io = |source| OpenError::Io {
            path: options.path.display().to_string(),
            source,
        };
        let threads = store
            .threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let (reader, started) = reader::start(readers).map_err(io)?;
        store.reader = Some(reader);
        threads.extend(started);
        let (scanner, started) = reader::start(scanner).map_err(io)?;
        store.scanner = Some(scanner);
        threads.extend(started);
        let feed = store.feed.clone();
        let (writer, thread) = writer::start(db, &options.path, jobs, health, feed)?;
        store.writer = Some(writer);
        threads.push(thread);
        Ok(store)
    }

    /// The setting that the file was opened with.
    pub const fn durability(&self) -> Durability {
        self.options.durability
    }

    /// Size of the file and its log, in bytes.
    pub fn bytes_on_disk(&self) -> u64 {
        let path = &self.options.path;
        [path.clone(), lock::with_suffix(path, "-wal")]
            .iter()
            .filter_map(|path| std::fs::metadata(path).ok())
            .map(|metadata| metadata.len())
            .sum()
    }

    /// Waits for an error after which the file must not be written any more, and returns it; a full disk is not one. The
    /// process should end then: after a failed flush the content of the disk is unknown until the file is opened again.
    pub async fn broken(&self) -> Arc<str> {
        self.health.wait_broken().await
    }

    /// Why writes are refused at present: the file is broken or full. A full file is tried again with each
    /// [`TaskStore::prune`].
    pub fn refuses_writes(&self) -> Option<Arc<str>> {
        let is_full = || {
            self.health
                .is_full()
                .then(|| Arc::from("the disk or the file is full"))
        };
        self.health.broken().cloned().or_else(is_full)
    }

    /// Tries whether a full file has room again.
    async fn try_room(&self) -> Result<(), StoreError> {
        let writer = self.writer()?;
        writer.call(Writer::try_room).await?;
        self.health.has_room();
        writer.call(Writer::delete_try).await
    }

    /// Limits the file to this many pages of 4 KiB from now on. A large number lifts the limit.
    pub async fn limit_pages(&self, pages: u32) -> Result<(), StoreError> {
        self.writer()?
            .call(move |writer| writer.limit_pages(pages))
            .await
    }

    fn writer(&self) -> Result<&WriterHandle, StoreError> {
        self.writer.as_ref().ok_or_else(crate::error::closed)
    }

    /// Executes a verb on each item. The results are in the order of the items.
    async fn write_batch<I: Send + 'static, T: Clone + Send + 'static>(
        &self,
        items: Vec<I>,
        verb: impl FnMut(&mut Writer, I) -> Result<T, ItemError> + Send + 'static,
    ) -> Vec<Result<T, StoreError>> {
        let count = items.len();
        let results = match self.writer() {
            Ok(writer) => writer.call_batch(items, verb).await,
            Err(error) => Err(error),
        };
        results.unwrap_or_else(|error| vec![Err(error); count])
    }

    fn reader(&self) -> Result<&ReaderHandle, StoreError> {
        self.reader.as_ref().ok_or_else(crate::error::closed)
    }

    fn scanner(&self) -> Result<&ReaderHandle, StoreError> {
        self.scanner.as_ref().ok_or_else(crate::error::closed)
    }

    fn entry(&self, name: &JobName) -> Result<JobEntry, StoreError> {
        let jobs = self.jobs.load();
        jobs.get(name)
            .cloned()
            .ok_or_else(|| StoreError::no_job(name))
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The threads end when their channels are closed. The writer's connection must close last: it merges the log
        // into the file, which a read-only connection cannot do.
        self.reader = None;
        self.scanner = None;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = threads.pop();
        for reader in threads.drain(..) {
            let _ = reader.join();
        }
        self.writer = None;
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

#[async_trait]
impl JobStore for SqliteStore {
    async fn put_job(&self, put: PutJob) -> Result<Arc<Job>, StoreError> {
        self.writer()?.call(move |writer| writer.put_job(put)).await
    }

    async fn job(&self, name: &JobName) -> Result<Option<Arc<Job>>, StoreError> {
        Ok(self.jobs.load().get(name).map(|entry| entry.job.clone()))
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        let jobs = self.jobs.load();
        Ok(jobs.iter().map(|entry| entry.job.clone()).collect())
    }

    async fn pause_job(
        &self,
        name: &JobName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Arc<Job>, StoreError> {
        let name = name.clone();
        self.writer()?
            .call(move |writer| writer.pause_job(&name, paused, now))
            .await
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        let name = name.clone();
        self.quotas.forget(&name);
        self.writer()?
            .call(move |writer| writer.delete_job(&name))
            .await
    }

    async fn swap_quota(&self, swap: QuotaSwap) -> Result<QuotaWrite, StoreError> {
        Ok(self.quotas.swap(swap))
    }

    async fn take_places(&self, take: TakePlaces) -> Result<Places, StoreError> {
        self.writer()?
            .call(move |writer| writer.take_places(&take))
            .await
    }
}

#[async_trait]
impl TaskStore for SqliteStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        self.write_batch(new, move |writer, create| writer.create(now, create))
            .await
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        let Ok(entry) = self.entry(job) else {
            return Ok(None);
        };
        let id = *id;
        self.reader()?
            .call(move |db| reader::get(db, &entry, &id))
            .await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        self.write_batch(commands, move |writer, command| writer.apply(now, command))
            .await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        let jobs = self.jobs.load();
        self.scanner()?
            .call(move |db| reader::due(db, &jobs, &query))
            .await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<LanePage, StoreError> {
        let entry = self.entry(&query.job)?;
        self.scanner()?
            .call(move |db| reader::lanes(db, &entry, &query))
            .await
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        let Ok(entry) = self.entry(job) else {
            return Ok(Vec::new());
        };
        self.scanner()?
            .call(move |db| reader::ready(db, &entry, limit))
            .await
    }

    async fn owned(
        &self,
        _now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        let (jobs, worker) = (self.jobs.load(), worker.cloned());
        self.scanner()?
            .call(move |db| reader::owned(db, &jobs, worker.as_ref()))
            .await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        let entry = self.entry(&query.job)?;
        let (cursor, descending) = (query.cursor.as_deref(), query.order.is_descending());
        // At most one task has a key, so its list needs no order.
        if query.order.is_by_due_time() && query.key.is_none() {
            let after = reader::parse_due_cursor(cursor, descending)?;
            return self
                .reader()?
                .call(move |db| reader::list_due(db, &entry, &query, after))
                .await;
        }
        let after = reader::parse_cursor(cursor, descending)?;
        self.reader()?
            .call(move |db| reader::list(db, &entry, &query, after))
            .await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<ChangePage, StoreError> {
        self.entry(&query.job)?;
        if self.feed.watch(&query.job, query.now)? {
            // What the writer has executed before it knew of this reader is committed now, and what it commits later is reported.
            self.writer()?.call(|_| Ok(())).await?;
        }
        self.feed.read(query).await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        let entry = self.entry(job)?;
        self.reader()?
            .call(move |db| reader::stats(db, &entry))
            .await
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let writer = self.writer()?;
        let pruned = writer.call(move |writer| writer.prune(now, limit)).await?;
        if self.health.is_full() {
            // A file that is still full stays so until the next call.
            let _ = self.try_room().await;
        }
        Ok(pruned)
    }
}

#[async_trait]
impl ScheduleStore for SqliteStore {
    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        self.write_batch(puts, |writer, put| writer.put_schedule(&put))
            .await
    }

    async fn schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<Option<Schedule>, StoreError> {
        let Ok(entry) = self.entry(job) else {
            return Ok(None);
        };
        let name = name.clone();
        self.reader()?
            .call(move |db| reader::schedule(db, &entry, &name))
            .await
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>, StoreError> {
        let entry = self.entry(&query.job)?;
        self.reader()?
            .call(move |db| reader::schedules(db, &entry, query.after.as_ref(), query.limit))
            .await
    }

    async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        let jobs = self.jobs.load();
        self.scanner()?
            .call(move |db| reader::due_schedules(db, &jobs, &query))
            .await
    }

    async fn delete_schedule(
        &self,
        job: &JobName,
        name: &ScheduleName,
    ) -> Result<bool, StoreError> {
        let (job, name) = (job.clone(), name.clone());
        self.writer()?
            .call(move |writer| writer.delete_schedule(&job, &name))
            .await
    }
}

#[async_trait]
impl WorkerStore for SqliteStore {
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        self.writer()?
            .call(move |writer| writer.put_workers(&workers))
            .await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.scanner()?.call(reader::workers).await
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        self.writer()?
            .call(move |writer| writer.remove_workers(&ids))
            .await
    }
}

#[async_trait]
impl FamilyStore for SqliteStore {
    async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError> {
        self.writer()?
            .call(move |writer| writer.put_edges(&edges))
            .await
    }

    async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError> {
        let Ok(entry) = self.entry(&query.from.job) else {
            return Ok(EdgePage::default());
        };
        self.scanner()?
            .call(move |db| reader::edges(db, &entry, &query))
            .await
    }

    async fn end_edge(&self, edge: Edge, end: TaskEnd) -> Result<(), StoreError> {
        self.writer()?
            .call(move |writer| writer.end_edge(&edge, Some(end)))
            .await
    }

    async fn reopen_edge(&self, edge: Edge) -> Result<(), StoreError> {
        self.writer()?
            .call(move |writer| writer.end_edge(&edge, None))
            .await
    }

    async fn open_children(
        &self,
        parent: &TaskAddress,
        limit: usize,
    ) -> Result<Vec<TaskAddress>, StoreError> {
        let Ok(entry) = self.entry(&parent.job) else {
            return Ok(Vec::new());
        };
        let id = parent.id;
        self.scanner()?
            .call(move |db| reader::open_children(db, &entry, &id, limit))
            .await
    }
}
