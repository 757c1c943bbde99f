//! Discards what a run has staged that ended without success, when its task will run again. Only a service that ends a run
//! does this at once: the end of the task, and the checks of the staged tasks, find what it misses.

use dueline_domain::Task;
use dueline_ports::{Applied, StoreError};

use crate::StatusControllerService;

impl StatusControllerService {
    /// Discards what runs have staged that these reports or reclaims have ended. Costs nothing for other tasks.
    pub(crate) async fn discard_staged(&self, results: &[Result<Applied, StoreError>]) {
        let applied = results.iter().filter_map(|result| result.as_ref().ok());
        let tasks = applied.map(|applied| &*applied.task);
        for task in tasks.filter(|task| Task::may_discard(task)) {
            let from = task.address();
            if let Err(error) = self.deps.families().end_runs(&from).await {
                tracing::warn!(
                    job.name = %task.job, task.id = %task.id, %error,
                    "failed to discard what a run has staged"
                );
            }
        }
    }
}
