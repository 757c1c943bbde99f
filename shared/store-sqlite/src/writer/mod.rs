//! The writer: the only thread that writes. It commits all waiting requests in one transaction and answers after the
//! commit.

mod apply;
mod broken;
mod cache;
mod changes;
mod counts;
mod create;
mod families;
mod file_names;
mod jobs;
mod limit_pages;
mod places;
mod prune;
mod request;
mod room;
mod schedules;
mod workers;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use dueline_domain::TaskNews;
use dueline_ports::{ChangeFeed, LocalPlaces, StoreError};
use rusqlite::Connection;

use self::{
    broken::SetBrokenOnPanic,
    cache::TaskCache,
    counts::StateCounts,
    file_names::FileNames,
    prune::PruneTimes,
    request::{BatchResults, WriteRequest, batch, single},
};
pub(crate) use self::{broken::WriteHealth, request::ItemError};
use crate::{
    error::{TransactionFailure, closed},
    jobs::{JobTable, SharedJobs},
};

/// Items after which a transaction is committed although requests wait, so that no answer is delayed by too many
/// others.
const ITEMS_PER_COMMIT_MAX: usize = 4_000;

/// Most requests that wait for the writer; further ones are throttled.
const REQUESTS_WAITING_MAX: usize = 65_536;

/// Sends requests to the writer.
#[derive(Clone)]
pub(crate) struct WriterHandle {
    requests: mpsc::SyncSender<Box<dyn WriteRequest>>,
}

impl WriterHandle {
    /// Executes a verb on one item, and waits until its transaction is committed.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&mut Writer) -> Result<T, ItemError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (request, answer) = single(verb);
        self.send(request)?;
        answer.await.map_err(|_| closed())?
    }

    /// Executes a verb on each item, and waits until their transaction is committed. The results are in the order of
    /// the items.
    pub(crate) async fn call_batch<I: Send + 'static, T: Send + 'static>(
        &self,
        items: Vec<I>,
        verb: impl FnMut(&mut Writer, I) -> Result<T, ItemError> + Send + 'static,
    ) -> Result<BatchResults<T>, StoreError> {
        let (request, answer) = batch(items, verb);
        self.send(request)?;
        answer.await.map_err(|_| closed())
    }

    fn send(&self, request: Box<dyn WriteRequest>) -> Result<(), StoreError> {
        self.requests
            .try_send(request)
            .map_err(|error| match error {
                mpsc::TrySendError::Full(_) => StoreError::Throttled,
                mpsc::TrySendError::Disconnected(_) => closed(),
            })
    }
}

/// Starts the writer's thread.
pub(crate) fn start(
    db: Connection,
    path: &Path,
    shared: Arc<SharedJobs>,
    health: Arc<WriteHealth>,
    feed: Arc<ChangeFeed>,
) -> rusqlite::Result<(WriterHandle, JoinHandle<()>)> {
    let mut writer = Writer::load(db, path, shared, health)?;
    writer.feed = feed;
    let (requests, waiting) = mpsc::sync_channel(REQUESTS_WAITING_MAX);
    let thread = std::thread::Builder::new()
        .name("dueline-writer".into())
        .spawn(move || {
            let _guard = SetBrokenOnPanic(writer.health.clone());
            writer.run(&waiting);
        })
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    Ok((WriterHandle { requests }, thread))
}

/// The state of the writer thread. The verbs are its methods, in the files of this folder.
pub(crate) struct Writer {
    db: Connection,
    jobs: JobTable,
    /// Row numbers of all jobs, also of those whose definition is unreadable: the pruner must not delete their tasks.
    job_rows: BTreeSet<i64>,
    jobs_changed: bool,
    shared: Arc<SharedJobs>,
    counts: StateCounts,
    cache: TaskCache,
    prune: PruneTimes,
    created_since_claim: u32,
    places: LocalPlaces,
    files: FileNames,
    health: Arc<WriteHealth>,
    /// Publishes changes to watches.
    feed: Arc<ChangeFeed>,
    /// The changes of the open transaction.
    news: Vec<TaskNews>,
}

impl Writer {
    fn load(
        db: Connection,
        path: &Path,
        shared: Arc<SharedJobs>,
        health: Arc<WriteHealth>,
    ) -> rusqlite::Result<Self> {
        let mut writer = Self {
            db,
            jobs: JobTable::default(),
            job_rows: BTreeSet::new(),
            jobs_changed: false,
            shared,
            counts: StateCounts::default(),
            cache: TaskCache::default(),
            prune: PruneTimes::default(),
            created_since_claim: 0,
            places: LocalPlaces::default(),
            files: FileNames::of(path),
            health,
            feed: Arc::default(),
            news: Vec::new(),
        };
        writer.reload()?;
        Ok(writer)
    }

    /// Rebuilds the state in memory from the file: at the start, and after a rollback.
    fn reload(&mut self) -> rusqlite::Result<()> {
        self.cache.clear();
        self.counts = StateCounts::load(&self.db)?;
        (self.jobs, self.job_rows) = jobs::load(&self.db)?;
        self.shared.store(self.jobs.clone());
        self.prune.rolled_back(&self.db)
    }

    fn run(&mut self, waiting: &mpsc::Receiver<Box<dyn WriteRequest>>) {
        let mut requests = Vec::new();
        while let Ok(first) = waiting.recv() {
            if self.health.broken().is_some() {
                // The file must not be written any more, and the process is about to end. Dropping the request answers
                // its caller.
                continue;
            }
            requests.push(first);
            match self.transaction(&mut requests, waiting) {
                Ok(()) if self.owns_file() => {
                    self.prune.committed();
                    self.publish();
                    if std::mem::take(&mut self.jobs_changed) {
                        self.shared.store(self.jobs.clone());
                    }
                    requests.drain(..).for_each(WriteRequest::succeed);
                }
                Ok(()) => self.fail_all(&mut requests),
                Err(error) => self.roll_back(&error, &mut requests),
            }
        }
    }

    /// One transaction of the first request and all that wait behind it, up to [`ITEMS_PER_COMMIT_MAX`] items. All its
    /// requests are in `requests` afterwards.
    fn transaction(
        &mut self,
        requests: &mut Vec<Box<dyn WriteRequest>>,
        waiting: &mpsc::Receiver<Box<dyn WriteRequest>>,
    ) -> rusqlite::Result<()> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut items = 0;
        while let Some(request) = requests.last_mut() {
            request.execute(self)?;
            items += request.items();
            if items >= ITEMS_PER_COMMIT_MAX {
                break;
            }
            match waiting.try_recv() {
                Ok(next) => requests.push(next),
                Err(_) => break,
            }
        }
        self.counts.save(&self.db)?;
        self.db.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// Whether what was just committed will be found again. Costs two look-ups of a name for each commit, about a
    /// microsecond.
    fn owns_file(&self) -> bool {
        let Some(path) = self.files.lost() else {
            return true;
        };
        let why = format!(
            "'{}' was deleted or replaced while the server ran; what is written now would be lost",
            path.display()
        );
        tracing::error!("{why}");
        self.health.set_broken(&why);
        false
    }

    /// Answers all requests that the file must not be written any more.
    fn fail_all(&mut self, requests: &mut Vec<Box<dyn WriteRequest>>) {
        self.news.clear();
        let why = self.health.broken().cloned().unwrap_or_default();
        let failure = TransactionFailure::Broken(why);
        for request in requests.drain(..) {
            request.fail(&failure);
        }
    }

    /// Rolls the transaction back: reloads the state in memory and answers all its requests with the error.
    fn roll_back(&mut self, error: &rusqlite::Error, requests: &mut Vec<Box<dyn WriteRequest>>) {
        let failure = TransactionFailure::of(error);
        if let TransactionFailure::Full(why) = &failure {
            self.health.refused_for_room(why);
        } else {
            let requests = requests.len();
            tracing::error!(%error, requests, "transaction failed and was rolled back");
        }
        // SQLite may have rolled back already; a second rollback then only fails.
        let _ = self.db.execute_batch("ROLLBACK");
        self.news.clear();
        let reloaded = self.reload();
        for request in requests.drain(..) {
            request.fail(&failure);
        }
        if let TransactionFailure::Broken(why) = &failure {
            self.health.set_broken(why);
        } else if let Err(error) = reloaded {
            self.health.set_broken(&error.to_string());
        }
    }
}
