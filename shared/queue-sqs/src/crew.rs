//! Work that goes on when the call that began it is gone.

use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// Tasks that end with the queue they belong to.
#[derive(Debug, Default)]
pub(crate) struct Crew(Mutex<JoinSet<()>>);

impl Crew {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                // Whoever waited for it was answered by its guard.
                tracing::error!(%error, "work of the queue ended by a panic");
            }
        }
        tasks.spawn(task);
    }

    pub(crate) fn stop(&self) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
    }
}
