//! Background tasks that outlive the call that started them.

use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// The background tasks of a queue. They are aborted when the queue is dropped.
#[derive(Debug, Default)]
pub(crate) struct RequestTasks(Mutex<JoinSet<()>>);

impl RequestTasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                // The task's guard has already answered the calls that waited for it.
                tracing::error!(%error, "a background task of the queue panicked");
            }
        }
        tasks.spawn(task);
    }

    pub(crate) fn stop(&self) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
    }
}
