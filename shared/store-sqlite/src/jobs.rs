//! Job definitions in memory: they are few and small, and every task needs one.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use dueline_domain::{Job, JobName};

/// A job and its row number, by which task rows refer to it.
#[derive(Clone, Debug)]
pub(crate) struct JobEntry {
    pub(crate) row: i64,
    pub(crate) job: Arc<Job>,
}

/// A snapshot of all jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobTable {
    by_name: BTreeMap<JobName, JobEntry>,
}

impl JobTable {
    pub(crate) fn get(&self, name: &JobName) -> Option<&JobEntry> {
        self.by_name.get(name)
    }

    pub(crate) fn insert(&mut self, row: i64, job: Arc<Job>) {
        self.by_name.insert(job.name.clone(), JobEntry { row, job });
    }

    pub(crate) fn remove(&mut self, name: &JobName) {
        self.by_name.remove(name);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &JobEntry> {
        self.by_name.values()
    }
}

/// The jobs as of the last commit, for readers. The writer has a table of its own.
#[derive(Debug, Default)]
pub(crate) struct SharedJobs(RwLock<Arc<JobTable>>);

impl SharedJobs {
    pub(crate) fn load(&self) -> Arc<JobTable> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn store(&self, jobs: JobTable) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(jobs);
    }
}
