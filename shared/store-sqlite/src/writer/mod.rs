//! The one thread that writes: it commits whatever has arrived together, and answers only after the commit.

mod apply;
mod cache;
mod counts;
mod create;
mod jobs;
mod prune;
mod workers;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use dueline_domain::{Job, JobName, Timestamp, WorkerId};
use dueline_ports::{Applied, Command, Create, Created, Pruned, PutJob, StoreError, WorkerRecord};
use rusqlite::Connection;
use tokio::sync::{Notify, oneshot};

use self::{cache::Cache, counts::Counts};
use crate::{
    error::{Failure, closed},
    jobs::{JobTable, SharedJobs},
    open,
};

/// Items after which a transaction is committed although more wait, so that no answer waits for too many others.
const ITEMS_PER_COMMIT_MAX: usize = 4_000;

/// Requests that may wait for the writer.
const REQUESTS_WAITING_MAX: usize = 65_536;

type Reply<T> = oneshot::Sender<T>;

/// Something to write.
pub(crate) enum Request {
    Create(
        Timestamp,
        Vec<Create>,
        Reply<Vec<Result<Created, StoreError>>>,
    ),
    Apply(
        Timestamp,
        Vec<Command>,
        Reply<Vec<Result<Applied, StoreError>>>,
    ),
    PutJob(Box<PutJob>, Reply<Result<Arc<Job>, StoreError>>),
    PauseJob(
        JobName,
        bool,
        Timestamp,
        Reply<Result<Arc<Job>, StoreError>>,
    ),
    DeleteJob(JobName, Reply<Result<(), StoreError>>),
    Prune(Timestamp, usize, Reply<Result<Pruned, StoreError>>),
    PutWorkers(Vec<WorkerRecord>, Reply<Result<(), StoreError>>),
    RemoveWorkers(Vec<WorkerId>, Reply<Result<(), StoreError>>),
    LimitPages(u32, Reply<Result<(), StoreError>>),
}

impl Request {
    /// Nothing of this happened.
    fn refuse(self, failure: &Failure) {
        let error = || failure.to_store();
        match self {
            Self::Create(_, new, reply) => {
                drop(reply.send(new.iter().map(|_| Err(error())).collect()));
            }
            Self::Apply(_, commands, reply) => {
                drop(reply.send(commands.iter().map(|_| Err(error())).collect()));
            }
            Self::PutJob(_, reply) | Self::PauseJob(_, _, _, reply) => {
                drop(reply.send(Err(error())));
            }
            Self::Prune(_, _, reply) => drop(reply.send(Err(error()))),
            Self::DeleteJob(_, reply)
            | Self::PutWorkers(_, reply)
            | Self::RemoveWorkers(_, reply)
            | Self::LimitPages(_, reply) => drop(reply.send(Err(error()))),
        }
    }
}

/// An answer that waits for the commit.
enum Answer {
    Create(
        Reply<Vec<Result<Created, StoreError>>>,
        Vec<Result<Created, StoreError>>,
    ),
    Apply(
        Reply<Vec<Result<Applied, StoreError>>>,
        Vec<Result<Applied, StoreError>>,
    ),
    Job(
        Reply<Result<Arc<Job>, StoreError>>,
        Result<Arc<Job>, StoreError>,
    ),
    Unit(Reply<Result<(), StoreError>>, Result<(), StoreError>),
    Pruned(
        Reply<Result<Pruned, StoreError>>,
        Result<Pruned, StoreError>,
    ),
}

impl Answer {
    fn send(self) {
        // A caller that went away does not want its answer.
        match self {
            Self::Create(reply, results) => drop(reply.send(results)),
            Self::Apply(reply, results) => drop(reply.send(results)),
            Self::Job(reply, result) => drop(reply.send(result)),
            Self::Unit(reply, result) => drop(reply.send(result)),
            Self::Pruned(reply, result) => drop(reply.send(result)),
        }
    }

    /// Nothing of this transaction happened.
    fn fail(self, failure: &Failure) {
        let error = || failure.to_store();
        match self {
            Self::Create(reply, results) => {
                drop(reply.send(results.iter().map(|_| Err(error())).collect()));
            }
            Self::Apply(reply, results) => {
                drop(reply.send(results.iter().map(|_| Err(error())).collect()));
            }
            Self::Job(reply, _) => drop(reply.send(Err(error()))),
            Self::Unit(reply, _) => drop(reply.send(Err(error()))),
            Self::Pruned(reply, _) => drop(reply.send(Err(error()))),
        }
    }
}

/// Whether the file can still be written.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    flag: AtomicBool,
    notify: Notify,
}

impl Broken {
    fn set(&self) {
        self.flag.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// Waits until the file cannot be written any more.
    pub(crate) async fn wait(&self) {
        let notified = self.notify.notified();
        if !self.flag.load(Ordering::Acquire) {
            notified.await;
        }
    }
}

/// The way to the writer.
#[derive(Clone)]
pub(crate) struct WriterHandle {
    requests: mpsc::SyncSender<Request>,
}

impl WriterHandle {
    /// Sends a request and waits for its answer.
    pub(crate) async fn call<T>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        match self.requests.try_send(request(reply)) {
            Ok(()) => answer.await.map_err(|_| closed()),
            Err(mpsc::TrySendError::Full(_)) => Err(StoreError::Throttled),
            Err(mpsc::TrySendError::Disconnected(_)) => Err(closed()),
        }
    }
}

/// Starts the writer's thread.
pub(crate) fn start(
    db: Connection,
    shared: Arc<SharedJobs>,
    broken: Arc<Broken>,
) -> rusqlite::Result<(WriterHandle, JoinHandle<()>)> {
    let mut writer = Writer::load(db, shared, broken)?;
    let (requests, waiting) = mpsc::sync_channel(REQUESTS_WAITING_MAX);
    let thread = std::thread::Builder::new()
        .name("dueline-writer".into())
        .spawn(move || {
            let _guard = BrokenByPanic(writer.broken.clone());
            writer.run(&waiting);
        })
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    Ok((WriterHandle { requests }, thread))
}

/// A writer that panics must not leave a store behind that refuses every write and looks alive.
struct BrokenByPanic(Arc<Broken>);

impl Drop for BrokenByPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set();
        }
    }
}

struct Writer {
    db: Connection,
    jobs: JobTable,
    /// Every job of the file, those whose definition cannot be read included: their tasks are not orphans.
    job_rows: BTreeSet<i64>,
    jobs_changed: bool,
    shared: Arc<SharedJobs>,
    counts: Counts,
    cache: Cache,
    prune_from: i64,
    created_since_claim: u32,
    broken: Arc<Broken>,
}

impl Writer {
    fn load(
        db: Connection,
        shared: Arc<SharedJobs>,
        broken: Arc<Broken>,
    ) -> rusqlite::Result<Self> {
        let mut writer = Self {
            db,
            jobs: JobTable::default(),
            job_rows: BTreeSet::new(),
            jobs_changed: false,
            shared,
            counts: Counts::default(),
            cache: Cache::default(),
            prune_from: 0,
            created_since_claim: 0,
            broken,
        };
        writer.reload()?;
        Ok(writer)
    }

    /// Reads what is kept in memory from the file: at the start, and after a transaction that was undone.
    fn reload(&mut self) -> rusqlite::Result<()> {
        self.cache.clear();
        self.counts = Counts::load(&self.db)?;
        (self.jobs, self.job_rows) = jobs::load(&self.db)?;
        self.shared.store(self.jobs.clone());
        Ok(())
    }

    fn run(&mut self, waiting: &mpsc::Receiver<Request>) {
        let mut answers = Vec::new();
        while let Ok(first) = waiting.recv() {
            if self.broken.flag.load(Ordering::Acquire) {
                // A file that failed once is not trusted again: the process has been told to end.
                continue;
            }
            let done = self.transaction(first, waiting, &mut answers);
            match done {
                Ok(()) => {
                    if std::mem::take(&mut self.jobs_changed) {
                        self.shared.store(self.jobs.clone());
                    }
                    answers.drain(..).for_each(Answer::send);
                }
                Err(error) => self.undo(&error, &mut answers),
            }
        }
    }

    /// One transaction over the first request and whatever else has arrived.
    fn transaction(
        &mut self,
        first: Request,
        waiting: &mpsc::Receiver<Request>,
        answers: &mut Vec<Answer>,
    ) -> rusqlite::Result<()> {
        let begun = self
            .db
            .prepare_cached("BEGIN IMMEDIATE")
            .and_then(|mut begin| begin.execute([]));
        if let Err(error) = begun {
            first.refuse(&Failure::of(&error));
            return Err(error);
        }
        let mut items = 0;
        let mut next = Some(first);
        let mut failed = None;
        while let Some(request) = next.take() {
            let (answer, count, error) = self.handle(request);
            answers.push(answer);
            items += count;
            if error.is_some() {
                failed = error;
                break;
            }
            if items < ITEMS_PER_COMMIT_MAX {
                next = waiting.try_recv().ok();
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        self.counts.save(&self.db)?;
        self.db.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// Carries one request out; answers how many items it had, and the error that ends the whole transaction.
    fn handle(&mut self, request: Request) -> (Answer, usize, Option<rusqlite::Error>) {
        match request {
            Request::Create(now, new, reply) => {
                let count = new.len();
                let (results, error) = self.create(now, new);
                (Answer::Create(reply, results), count, error)
            }
            Request::Apply(now, commands, reply) => {
                let count = commands.len();
                let (results, error) = self.apply(now, commands);
                (Answer::Apply(reply, results), count, error)
            }
            Request::PutJob(put, reply) => one(self.put_job(*put), |r| Answer::Job(reply, r)),
            Request::PauseJob(name, paused, now, reply) => {
                one(self.pause_job(&name, paused, now), |r| {
                    Answer::Job(reply, r)
                })
            }
            Request::DeleteJob(name, reply) => {
                one(self.delete_job(&name), |r| Answer::Unit(reply, r))
            }
            Request::Prune(now, limit, reply) => {
                one(self.prune(now, limit), |r| Answer::Pruned(reply, r))
            }
            Request::PutWorkers(workers, reply) => {
                one(self.put_workers(&workers), |r| Answer::Unit(reply, r))
            }
            Request::RemoveWorkers(ids, reply) => {
                one(self.remove_workers(&ids), |r| Answer::Unit(reply, r))
            }
            Request::LimitPages(pages, reply) => {
                let done = open::limit_pages(&self.db, pages).map_err(ItemError::from);
                one(done, |r| Answer::Unit(reply, r))
            }
        }
    }

    /// The transaction did not happen: say so to everyone in it, and forget what memory made of it.
    fn undo(&mut self, error: &rusqlite::Error, answers: &mut Vec<Answer>) {
        let failure = Failure::of(error);
        tracing::error!(%error, requests = answers.len(), "a transaction failed");
        // SQLite may have rolled back by itself; a second rollback only reports that.
        let _ = self.db.execute_batch("ROLLBACK");
        let reloaded = self.reload();
        for answer in answers.drain(..) {
            answer.fail(&failure);
        }
        if matches!(failure, Failure::Broken(_)) || reloaded.is_err() {
            self.broken.set();
        }
    }
}

/// The error of an item: of its own, or one that ends the transaction.
enum ItemError {
    Own(StoreError),
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for ItemError {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            // A row that makes no sense concerns its own task only.
            error @ rusqlite::Error::FromSqlConversionFailure(..) => {
                Self::Own(StoreError::Corrupt(Arc::from(error.to_string())))
            }
            error => Self::Sql(error),
        }
    }
}

impl From<StoreError> for ItemError {
    fn from(error: StoreError) -> Self {
        Self::Own(error)
    }
}

/// Answers a request that is one item.
fn one<T>(
    result: Result<T, ItemError>,
    answer: impl FnOnce(Result<T, StoreError>) -> Answer,
) -> (Answer, usize, Option<rusqlite::Error>) {
    match result {
        Ok(value) => (answer(Ok(value)), 1, None),
        Err(ItemError::Own(error)) => (answer(Err(error)), 1, None),
        Err(ItemError::Sql(error)) => (answer(Err(closed())), 1, Some(error)),
    }
}

/// Answers a request of many items: each by itself, until an error ends the transaction for all of them.
fn many<I, T>(
    items: Vec<I>,
    mut each: impl FnMut(I) -> Result<T, ItemError>,
) -> (Vec<Result<T, StoreError>>, Option<rusqlite::Error>) {
    let mut results = Vec::with_capacity(items.len());
    let mut fatal = None;
    for item in items {
        if fatal.is_some() {
            results.push(Err(closed()));
            continue;
        }
        results.push(each(item).map_err(|error| match error {
            ItemError::Own(error) => error,
            ItemError::Sql(error) => {
                fatal = Some(error);
                closed()
            }
        }));
    }
    (results, fatal)
}
