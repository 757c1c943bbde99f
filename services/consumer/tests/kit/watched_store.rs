//! A store that counts, fails and takes turns as a test wants.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{Job, JobName, Task, TaskId, TaskRef, Timestamp, WorkerId};
use dueline_ports::{
    Applied, Command, DuePage, DueQuery, Share, Store, StoreError,
    fakes::{MemoryStore, StoreLayer},
};
use tokio::{task::yield_now, time::sleep};

/// The store in memory, behind a step in which others may act before each call.
pub(crate) struct WatchedStore {
    inner: MemoryStore,
    looks: AtomicUsize,
    failing: AtomicUsize,
    ready_reads: AtomicUsize,
    ready_fails: AtomicBool,
    jobs_fail: AtomicBool,
    shares: Mutex<Vec<Option<Share>>>,
    muted: Mutex<Option<WorkerId>>,
    hot: Mutex<Option<JobName>>,
    refused: AtomicUsize,
    write_ms: AtomicU64,
}

impl WatchedStore {
    pub(crate) fn new(inner: MemoryStore) -> Self {
        Self {
            inner,
            looks: AtomicUsize::new(0),
            failing: AtomicUsize::new(0),
            ready_reads: AtomicUsize::new(0),
            ready_fails: AtomicBool::new(false),
            jobs_fail: AtomicBool::new(false),
            shares: Mutex::default(),
            muted: Mutex::default(),
            hot: Mutex::default(),
            refused: AtomicUsize::new(0),
            write_ms: AtomicU64::new(0),
        }
    }

    /// From now on each written task takes so long.
    pub(crate) fn slow_down(&self, write_ms: u64) {
        self.write_ms.store(write_ms, Ordering::Relaxed);
    }

    /// From now on too much is asked about the tasks of this job, if of any.
    pub(crate) fn heat(&self, job: Option<JobName>) {
        *self.hot.lock().unwrap() = job;
    }

    /// How often something was refused for that.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    fn is_hot(&self, job: &JobName) -> bool {
        let is_hot = self.hot.lock().unwrap().as_ref() == Some(job);
        self.refused
            .fetch_add(usize::from(is_hot), Ordering::Relaxed);
        is_hot
    }

    /// How often due tasks were asked for.
    pub(crate) fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }

    /// What each look covered.
    pub(crate) fn shares(&self) -> Vec<Option<Share>> {
        self.shares.lock().unwrap().clone()
    }

    /// Looks so far do not count.
    pub(crate) fn forget_shares(&self) {
        self.shares.lock().unwrap().clear();
    }

    /// Nothing this process says gets here any more: not even its goodbye.
    pub(crate) fn mute(&self, worker: &WorkerId) {
        *self.muted.lock().unwrap() = Some(worker.clone());
    }

    fn is_muted(&self, worker: &WorkerId) -> bool {
        self.muted.lock().unwrap().as_ref() == Some(worker)
    }

    /// The next looks fail.
    pub(crate) fn fail_looks(&self, count: usize) {
        self.failing.store(count, Ordering::Relaxed);
    }

    /// How often ready tasks were asked for.
    pub(crate) fn ready_reads(&self) -> usize {
        self.ready_reads.load(Ordering::Relaxed)
    }

    /// Whether reads of ready tasks fail from now on.
    pub(crate) fn fail_ready_reads(&self, fails: bool) {
        self.ready_fails.store(fails, Ordering::Relaxed);
    }

    /// Whether reads of definitions fail from now on.
    pub(crate) fn fail_jobs(&self, fails: bool) {
        self.jobs_fail.store(fails, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Vec<Task> {
        self.inner.snapshot()
    }
}

fn down() -> StoreError {
    StoreError::Unavailable {
        message: "down".into(),
        outcome_unknown: false,
    }
}

#[async_trait]
impl StoreLayer for WatchedStore {
    fn below(&self) -> &dyn Store {
        &self.inner
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, StoreError> {
        if self.jobs_fail.load(Ordering::Relaxed) {
            return Err(down());
        }
        self.below().jobs().await
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        if self.is_hot(job) {
            return Err(StoreError::Throttled);
        }
        self.below().get(job, id).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        yield_now().await;
        let took = self.write_ms.load(Ordering::Relaxed) * commands.len() as u64;
        if took > 0 {
            sleep(Duration::from_millis(took)).await;
        }
        let mut answers = Vec::new();
        for command in commands {
            if self.is_hot(&command.job) {
                answers.push(Err(StoreError::Throttled));
            } else {
                answers.extend(self.below().apply(now, vec![command]).await);
            }
        }
        answers
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.shares.lock().unwrap().push(query.share.clone());
        let failing = self
            .failing
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if failing.is_ok() {
            return Err(down());
        }
        let page = self.below().due(query).await;
        yield_now().await;
        page
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        self.ready_reads.fetch_add(1, Ordering::Relaxed);
        if self.ready_fails.load(Ordering::Relaxed) {
            return Err(down());
        }
        self.below().ready(job, limit).await
    }

    async fn remove_workers(&self, ids: Vec<WorkerId>) -> Result<(), StoreError> {
        if ids.iter().any(|id| self.is_muted(id)) {
            return Err(down());
        }
        self.below().remove_workers(ids).await
    }
}
