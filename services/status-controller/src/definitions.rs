//! Definitions of jobs that one call needs.

use std::sync::Arc;

use dueline_domain::{Job, JobName};
use dueline_ports::StoreError;

use crate::StatusController;

/// The definitions that one call needs, each read once. A call's tasks rarely belong to more than a few jobs.
pub(crate) struct Definitions(Vec<(JobName, Result<Arc<Job>, StoreError>)>);

impl Definitions {
    pub(crate) fn of(&self, name: &JobName) -> Option<&Result<Arc<Job>, StoreError>> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, job)| job)
    }
}

impl StatusController {
    pub(crate) async fn definitions(
        &self,
        names: impl Iterator<Item = &JobName> + Send,
    ) -> Definitions {
        let mut definitions = Definitions(Vec::new());
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
