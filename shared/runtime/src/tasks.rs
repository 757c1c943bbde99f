//! Supervised async tasks: a failure is logged and ends the service.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex},
};

use futures_util::FutureExt as _;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Why a supervised async task ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{task} {what}")]
pub struct ServiceError {
    /// The name of the async task.
    pub task: &'static str,
    /// How it ended.
    pub what: String,
}

/// The async tasks of one service. When one of them panics or fails, [`TaskGroup::failed`] returns, and
/// [`TaskGroup::wait`] returns the first failure. The end of a loop thus ends its service with an error.
#[derive(Clone, Default)]
pub struct TaskGroup {
    tracker: TaskTracker,
    failed: CancellationToken,
    failure: Arc<Mutex<Option<ServiceError>>>,
}

impl TaskGroup {
    /// A group without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs an async task. A panic or an error of it is a failure of the group; its normal end is not.
    pub fn spawn<E: fmt::Display>(
        &self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let group = self.clone();
        self.tracker.spawn(async move {
            let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
            let what = match ended {
                Ok(Ok(())) => return,
                Ok(Err(error)) => format!("failed: {error}"),
                Err(panic) => format!("panicked: {}", panic_text(&*panic)),
            };
            group.fail(ServiceError { task: name, what });
        });
    }

    /// Runs an async task that can only fail by a panic.
    pub fn spawn_infallible(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn(name, task.map(Ok::<(), std::convert::Infallible>));
    }

    /// Waits until a task has failed. Cancel safe.
    pub async fn failed(&self) -> ServiceError {
        self.failed.cancelled().await;
        self.first_failure().unwrap_or(ServiceError {
            task: "task group",
            what: "failed".into(),
        })
    }

    /// Waits until all tasks have ended; returns the first failure, if there was one.
    pub async fn wait(&self) -> Result<(), ServiceError> {
        self.tracker.close();
        self.tracker.wait().await;
        self.first_failure().map_or(Ok(()), Err)
    }

    /// Number of tasks that have not ended.
    pub fn len(&self) -> usize {
        self.tracker.len()
    }

    /// Whether all tasks have ended.
    pub fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }

    fn fail(&self, error: ServiceError) {
        tracing::error!(
            task = error.task,
            what = error.what,
            "a supervised async task ended with a failure"
        );
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(error);
        }
        self.failed.cancel();
    }

    fn first_failure(&self) -> Option<ServiceError> {
        self.failure.lock().ok().and_then(|failure| failure.clone())
    }
}

/// The message of a caught panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_fails_the_group_with_the_name_of_the_task() {
        let group = TaskGroup::new();
        group.spawn_infallible("due scan", async { panic!("no reason") });
        let error = group.failed().await;
        assert_eq!(error.to_string(), "due scan panicked: no reason");
        assert_eq!(group.wait().await, Err(error));
    }

    #[tokio::test]
    async fn a_normal_end_is_not_a_failure() {
        let group = TaskGroup::new();
        group.spawn_infallible("short", async {});
        assert_eq!(group.wait().await, Ok(()));
    }
}
