//! The store service behind the faulty stores of all hosts.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dueline_domain::{JobName, TaskId};

use super::StoreMethod;

/// A part of the store that throttles its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HotSpot {
    /// All calls of a method.
    Method(StoreMethod),
    /// All calls about the tasks of a job, as if its partitions were hot.
    Job(JobName),
}

/// The service behind all faulty stores. Clones are the same service.
///
/// It knows which tasks are being written, so that two concurrent writes of one task can conflict. It also knows the
/// hot spots and counts the requests.
#[derive(Clone, Debug, Default)]
pub struct StoreEngine(Arc<EngineState>);

#[derive(Debug, Default)]
struct EngineState {
    /// Number of calls that are writing each task.
    writing: Mutex<BTreeMap<TaskId, u32>>,
    /// The hot spots, and how many of a thousand calls each of them throttles.
    hot: Mutex<Vec<(HotSpot, u32)>>,
    requests: AtomicU64,
}

impl StoreEngine {
    /// A service without hot spots.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hot spot that throttles `per_mille` of its calls.
    pub fn heat(&self, hot: HotSpot, per_mille: u32) {
        self.hot().push((hot, per_mille));
    }

    /// Removes a hot spot; of several equal ones, the first.
    pub fn cool(&self, hot: &HotSpot) {
        let mut all = self.hot();
        if let Some(at) = all.iter().position(|(other, _)| other == hot) {
            all.remove(at);
        }
    }

    /// Removes all hot spots.
    pub fn cool_all(&self) {
        self.hot().clear();
    }

    /// Number of requests of all stores. Each item of a batch counts as one.
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    pub(super) fn count_requests(&self, items: usize) {
        self.0.requests.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// How many of a thousand calls of `method` are throttled.
    pub(super) fn heat_of_method(&self, method: StoreMethod) -> u32 {
        self.heat_of(|hot| *hot == HotSpot::Method(method))
    }

    /// How many of a thousand calls about `job` are throttled.
    pub(super) fn heat_of_job(&self, job: &JobName) -> u32 {
        self.heat_of(|hot| matches!(hot, HotSpot::Job(name) if name == job))
    }

    fn heat_of(&self, applies: impl Fn(&HotSpot) -> bool) -> u32 {
        let all = self.hot();
        let rates = all.iter().filter(|(hot, _)| applies(hot));
        rates.map(|(_, rate)| *rate).max().unwrap_or(0)
    }

    /// Begins a write of these tasks. Also returns those that another call is writing.
    pub(super) fn begin_writes(&self, mut ids: Vec<TaskId>) -> (WritesInProgress<'_>, Vec<TaskId>) {
        // Several commands of one call for one task do not conflict.
        ids.sort_unstable();
        ids.dedup();
        let mut writing = self.writing();
        let mut contested = Vec::new();
        for id in &ids {
            let calls = writing.entry(*id).or_default();
            if *calls > 0 {
                contested.push(*id);
            }
            *calls += 1;
        }
        drop(writing);
        (WritesInProgress { engine: self, ids }, contested)
    }

    fn writing(&self) -> MutexGuard<'_, BTreeMap<TaskId, u32>> {
        let writing = &self.0.writing;
        writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hot(&self) -> MutexGuard<'_, Vec<(HotSpot, u32)>> {
        self.0.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks that one call is writing. Dropped when the call ends.
pub(super) struct WritesInProgress<'a> {
    engine: &'a StoreEngine,
    ids: Vec<TaskId>,
}

impl Drop for WritesInProgress<'_> {
    fn drop(&mut self) {
        let mut writing = self.engine.writing();
        for id in &self.ids {
            if let Some(calls) = writing.get_mut(id) {
                *calls -= 1;
                if *calls == 0 {
                    writing.remove(id);
                }
            }
        }
    }
}
