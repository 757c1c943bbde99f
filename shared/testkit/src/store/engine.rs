//! What the stores of all hosts have in common: the service behind them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dueline_domain::{JobName, TaskId};

use super::StoreMethod;

/// What may be asked of more than it can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hot {
    /// Every call of a method.
    Method(StoreMethod),
    /// Everything about the tasks of a job, whose partitions are hot; other jobs are not touched.
    Job(JobName),
}

/// The service that all stores in front of it ask. Clones are the same service.
///
/// It knows which tasks are being written at this moment, so that two writes of one task can conflict, which of its
/// parts are hot, and how much was asked of it.
#[derive(Clone, Debug, Default)]
pub struct Engine(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// How many calls write each task now.
    writing: Mutex<BTreeMap<TaskId, u32>>,
    /// What is hot, and how often, in thousandths, it refuses.
    hot: Mutex<Vec<(Hot, u32)>>,
    requests: AtomicU64,
}

impl Engine {
    /// A service with nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on `hot` refuses this often, in thousandths.
    pub fn heat(&self, hot: Hot, per_mille: u32) {
        self.hot().push((hot, per_mille));
    }

    /// Takes back one [`Engine::heat`].
    pub fn cool(&self, hot: &Hot) {
        let mut all = self.hot();
        if let Some(at) = all.iter().position(|(other, _)| other == hot) {
            all.remove(at);
        }
    }

    /// Nothing is hot any more.
    pub fn cool_all(&self) {
        self.hot().clear();
    }

    /// How many items all stores together have asked for: one for a call that is no batch.
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    pub(super) fn asked(&self, items: usize) {
        self.0.requests.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// How often `method` is refused whatever it is about, in thousandths.
    pub(super) fn heat_of_method(&self, method: StoreMethod) -> u32 {
        self.heat_of(|hot| *hot == Hot::Method(method))
    }

    /// How often what is asked about `job` is refused, in thousandths.
    pub(super) fn heat_of_job(&self, job: &JobName) -> u32 {
        self.heat_of(|hot| matches!(hot, Hot::Job(name) if name == job))
    }

    fn heat_of(&self, concerns: impl Fn(&Hot) -> bool) -> u32 {
        let all = self.hot();
        let rates = all.iter().filter(|(hot, _)| concerns(hot));
        rates.map(|(_, rate)| *rate).max().unwrap_or(0)
    }

    /// One call begins to write these tasks; answers which of them another call is writing.
    pub(super) fn write(&self, mut ids: Vec<TaskId>) -> (Writing<'_>, Vec<TaskId>) {
        // Several commands of one call for one task do not get into each other's way.
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
        (Writing { engine: self, ids }, contested)
    }

    fn writing(&self) -> MutexGuard<'_, BTreeMap<TaskId, u32>> {
        let writing = &self.0.writing;
        writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hot(&self) -> MutexGuard<'_, Vec<(Hot, u32)>> {
        self.0.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tasks that one call is writing, until it is dropped.
pub(super) struct Writing<'a> {
    engine: &'a Engine,
    ids: Vec<TaskId>,
}

impl Drop for Writing<'_> {
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
