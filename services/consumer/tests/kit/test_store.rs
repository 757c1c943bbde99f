//! A store in memory that counts calls, and fails or delays them as a test specifies.

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

/// A layer over the store in memory, which yields to other tasks around calls.
pub(crate) struct TestStore {
    inner: MemoryStore,
    scans: AtomicUsize,
    failing_scans: AtomicUsize,
    ready_reads: AtomicUsize,
    ready_fails: AtomicBool,
    jobs_fail: AtomicBool,
    shares: Mutex<Vec<Option<Share>>>,
    failing_deregistration: Mutex<Option<WorkerId>>,
    throttled_job: Mutex<Option<JobName>>,
    throttled_calls: AtomicUsize,
    write_ms: AtomicU64,
}

impl TestStore {
    pub(crate) fn new(inner: MemoryStore) -> Self {
        Self {
            inner,
            scans: AtomicUsize::new(0),
            failing_scans: AtomicUsize::new(0),
            ready_reads: AtomicUsize::new(0),
            ready_fails: AtomicBool::new(false),
            jobs_fail: AtomicBool::new(false),
            shares: Mutex::default(),
            failing_deregistration: Mutex::default(),
            throttled_job: Mutex::default(),
            throttled_calls: AtomicUsize::new(0),
            write_ms: AtomicU64::new(0),
        }
    }

    /// Each written task takes this long from now on.
    pub(crate) fn slow_down(&self, write_ms: u64) {
        self.write_ms.store(write_ms, Ordering::Relaxed);
    }

    /// Throttles all calls for the tasks of this job from now on; `None` ends that.
    pub(crate) fn throttle_job(&self, job: Option<JobName>) {
        *self.throttled_job.lock().unwrap() = job;
    }

    /// How many calls were throttled.
    pub(crate) fn throttled_calls(&self) -> usize {
        self.throttled_calls.load(Ordering::Relaxed)
    }

    fn is_throttled(&self, job: &JobName) -> bool {
        let is_throttled = self.throttled_job.lock().unwrap().as_ref() == Some(job);
        self.throttled_calls
            .fetch_add(usize::from(is_throttled), Ordering::Relaxed);
        is_throttled
    }

    /// How often due tasks were read.
    pub(crate) fn scans(&self) -> usize {
        self.scans.load(Ordering::Relaxed)
    }

    /// The share that each scan read.
    pub(crate) fn shares(&self) -> Vec<Option<Share>> {
        self.shares.lock().unwrap().clone()
    }

    /// Removes the recorded shares.
    pub(crate) fn clear_shares(&self) {
        self.shares.lock().unwrap().clear();
    }

    /// Fails the deregistration of this worker from now on.
    pub(crate) fn fail_deregistration(&self, worker: &WorkerId) {
        *self.failing_deregistration.lock().unwrap() = Some(worker.clone());
    }

    fn fails_to_deregister(&self, worker: &WorkerId) -> bool {
        self.failing_deregistration.lock().unwrap().as_ref() == Some(worker)
    }

    /// Fails the next scans.
    pub(crate) fn fail_scans(&self, count: usize) {
        self.failing_scans.store(count, Ordering::Relaxed);
    }

    /// How often ready tasks were read.
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
impl StoreLayer for TestStore {
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
        if self.is_throttled(job) {
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
        let mut results = Vec::new();
        for command in commands {
            if self.is_throttled(&command.job) {
                results.push(Err(StoreError::Throttled));
            } else {
                results.extend(self.below().apply(now, vec![command]).await);
            }
        }
        results
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.shares.lock().unwrap().push(query.share.clone());
        let is_failing =
            self.failing_scans
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if is_failing.is_ok() {
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
        if ids.iter().any(|id| self.fails_to_deregister(id)) {
            return Err(down());
        }
        self.below().remove_workers(ids).await
    }
}
