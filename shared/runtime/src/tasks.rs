//! Supervised tasks: one that breaks is never silent.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex},
};

use futures_util::FutureExt as _;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Why a service ended that should not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{task} {what}")]
pub struct ServiceError {
    /// The task that ended.
    pub task: &'static str,
    /// How.
    pub what: String,
}

/// Tasks that belong together. When one panics or fails, the group is told ([`TaskGroup::failed`]) and
/// [`TaskGroup::wait`] answers the first failure, so a dead loop ends its service loudly.
#[derive(Clone, Default)]
pub struct TaskGroup {
    tracker: TaskTracker,
    failed: CancellationToken,
    failure: Arc<Mutex<Option<ServiceError>>>,
}

impl TaskGroup {
    /// No tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a task that ends when it is done or told to stop. A panic or an error is a failure of the group.
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

    /// Runs a task that cannot fail but by a panic.
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

    /// Waits until all tasks have ended; the first failure, if there was one.
    pub async fn wait(&self) -> Result<(), ServiceError> {
        self.tracker.close();
        self.tracker.wait().await;
        self.first_failure().map_or(Ok(()), Err)
    }

    /// Tasks that have not ended.
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
            "a supervised task ended"
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

/// The text of a panic that was caught.
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
    async fn a_panicking_loop_fails_the_group_and_says_its_name() {
        let group = TaskGroup::new();
        group.spawn_infallible("due scan", async { panic!("no reason") });
        let error = group.failed().await;
        assert_eq!(error.to_string(), "due scan panicked: no reason");
        assert_eq!(group.wait().await, Err(error));
    }

    #[tokio::test]
    async fn a_loop_that_ends_as_told_is_no_failure() {
        let group = TaskGroup::new();
        group.spawn_infallible("short", async {});
        assert_eq!(group.wait().await, Ok(()));
    }
}
