//! The store: hands writes to the writer, reads to the readers.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use async_trait::async_trait;
use dueline_domain::{Job, JobName, Task, TaskId, TaskRef, Timestamp, WorkerId};
use dueline_ports::{
    Applied, Command, Create, Created, DuePage, DueQuery, JobStats, JobStore, ListQuery, OwnedTask,
    Page, Pruned, PutJob, StoreError, TaskStore, WorkerRecord, WorkerStore,
};

use crate::{
    jobs::{JobEntry, SharedJobs},
    lock::{self, OwnerLock},
    open::{self, Durability, OpenError, SqliteOptions},
    reader::{self, ReaderHandle},
    writer::{self, Broken, Request, WriterHandle},
};

/// Connections that read for clients.
const READERS: usize = 2;

/// The task store on one SQLite file.
///
/// The file belongs to this process until the store is dropped; dropping it waits for the writer to commit what it
/// was given.
pub struct SqliteStore {
    writer: Option<WriterHandle>,
    reader: Option<ReaderHandle>,
    /// A reader of its own for what the services ask: long lists of clients must not hide what is due.
    scanner: Option<ReaderHandle>,
    jobs: Arc<SharedJobs>,
    broken: Arc<Broken>,
    options: SqliteOptions,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _lock: OwnerLock,
}

impl SqliteStore {
    /// Opens a file, or makes it.
    pub fn open(options: SqliteOptions) -> Result<Self, OpenError> {
        let lock = lock::lock(&options.path)?;
        let options = SqliteOptions {
            path: lock.path.clone(),
            ..options
        };
        let (jobs, broken) = <(Arc<SharedJobs>, Arc<Broken>)>::default();
        // Whatever fails from here on: the connections and the threads that have them end before the lock does.
        let mut store = Self {
            writer: None,
            reader: None,
            scanner: None,
            jobs: jobs.clone(),
            broken: broken.clone(),
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
        let (writer, thread) = writer::start(db, jobs, broken)?;
        store.writer = Some(writer);
        threads.push(thread);
        Ok(store)
    }

    /// What an acknowledged write survives.
    pub const fn durability(&self) -> Durability {
        self.options.durability
    }

    /// Bytes of the file and its log.
    pub fn bytes_on_disk(&self) -> u64 {
        let path = &self.options.path;
        [path.clone(), lock::with_suffix(path, "-wal")]
            .iter()
            .filter_map(|path| std::fs::metadata(path).ok())
            .map(|metadata| metadata.len())
            .sum()
    }

    /// Waits until the file cannot be written any more, by an error other than a full disk. The process should end
    /// then: after a failed flush nobody knows what the disk holds until the file is opened again.
    pub async fn broken(&self) {
        self.broken.wait().await;
    }

    /// Bounds the file to this many pages of 4 KiB from now on, or lifts the bound by a large number.
    pub async fn limit_pages(&self, pages: u32) -> Result<(), StoreError> {
        self.writer()?
            .call(|reply| Request::LimitPages(pages, reply))
            .await?
    }

    fn writer(&self) -> Result<&WriterHandle, StoreError> {
        self.writer.as_ref().ok_or_else(crate::error::closed)
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
        // The threads end when their channels are closed. The writer's connection must be the last one: it puts the
        // log back into the file when it closes, which a connection that only reads cannot do.
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
        self.writer()?
            .call(|reply| Request::PutJob(Box::new(put), reply))
            .await?
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
            .call(|reply| Request::PauseJob(name, paused, now, reply))
            .await?
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), StoreError> {
        let name = name.clone();
        self.writer()?
            .call(|reply| Request::DeleteJob(name, reply))
            .await?
    }
}

#[async_trait]
impl TaskStore for SqliteStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let count = new.len();
        let done = match self.writer() {
            Ok(writer) => writer.call(|reply| Request::Create(now, new, reply)).await,
            Err(error) => Err(error),
        };
        done.unwrap_or_else(|error| vec![Err(error); count])
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
        let count = commands.len();
        let done = match self.writer() {
            Ok(writer) => {
                writer
                    .call(|reply| Request::Apply(now, commands, reply))
                    .await
            }
            Err(error) => Err(error),
        };
        done.unwrap_or_else(|error| vec![Err(error); count])
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        let jobs = self.jobs.load();
        self.scanner()?
            .call(move |db| reader::due(db, &jobs, &query))
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
        let before = reader::parse_cursor(query.cursor.as_deref())?;
        self.reader()?
            .call(move |db| reader::list(db, &entry, &query, before))
            .await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        let entry = self.entry(job)?;
        self.reader()?
            .call(move |db| reader::stats(db, &entry))
            .await
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        self.writer()?
            .call(|reply| Request::Prune(now, limit, reply))
            .await?
    }
}

#[async_trait]
impl WorkerStore for SqliteStore {
    async fn put_workers(&self, workers: Vec<WorkerRecord>) -> Result<(), StoreError> {
        self.writer()?
            .call(|reply| Request::PutWorkers(workers, reply))
            .await?
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.scanner()?.call(reader::workers).await
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        self.writer()?
            .call(|reply| Request::RemoveWorkers(ids, reply))
            .await?
    }
}
