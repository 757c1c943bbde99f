//! The definitions of the jobs in one call.

use std::sync::Arc;

use dueline_domain::{Job, JobName};
use dueline_ports::StoreError;

use crate::StatusControllerService;

/// The definitions of the jobs in one call, each read once. A list, because the tasks of one call rarely belong to more
/// than a few jobs.
pub(crate) struct JobDefinitions(Vec<(JobName, Result<Arc<Job>, StoreError>)>);

impl JobDefinitions {
    pub(crate) fn of(&self, name: &JobName) -> Option<&Result<Arc<Job>, StoreError>> {
        let entry = self.0.iter().find(|(entry, _)| entry == name);
        entry.map(|(_, job)| job)
    }
}

impl StatusControllerService {
    pub(crate) async fn definitions(
        &self,
        names: impl Iterator<Item = &JobName> + Send,
    ) -> JobDefinitions {
        let mut definitions = JobDefinitions(Vec::new());
        for name in names {
            if definitions.of(name).is_none() {
                let job = self.deps.store.job(name).await;
                let job = job.and_then(|job| job.ok_or_else(|| StoreError::no_job(name)));
                definitions.0.push((name.clone(), job));
            }
        }
        definitions
    }
}
