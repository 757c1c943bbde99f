//! The handler trait.

use async_trait::async_trait;

use crate::{Failure, HandlerResult, RunningTask, Success};

/// Code that runs tasks. One value runs many tasks at the same time; they share `self`.
///
/// A run should end soon after [`RunningTask::stopped`] fires. Otherwise its future is dropped after the kill grace, so
/// the handler must tolerate being dropped at any await point. A panic counts as a failed run. Code that blocks its
/// thread cannot be stopped and belongs on a blocking thread.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one task. The returned result counts unless the task was finished explicitly before.
    async fn run(&self, task: &RunningTask) -> HandlerResult;
}

/// Makes a handler of an async closure. Its runs share what the closure captures:
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use dueline_executor::{Registry, handler_fn};
///
/// let bytes_seen = Arc::new(AtomicU64::new(0));
/// let registry = Registry::builder()
///     .job("count", handler_fn(move |task| {
///         let bytes_seen = bytes_seen.clone();
///         async move {
///             let text = std::str::from_utf8(task.input())?;
///             bytes_seen.fetch_add(text.len() as u64, Ordering::Relaxed);
///             Ok(())
///         }
///     }))
///     .build();
/// assert!(registry.is_ok());
/// ```
pub fn handler_fn<F, Fut, S>(run: F) -> impl Handler
where
    F: Fn(RunningTask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S, Failure>> + Send,
    S: Into<Success>,
{
    HandlerFn(run)
}

struct HandlerFn<F>(F);

#[async_trait]
impl<F, Fut, S> Handler for HandlerFn<F>
where
    F: Fn(RunningTask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S, Failure>> + Send,
    S: Into<Success>,
{
    async fn run(&self, task: &RunningTask) -> HandlerResult {
        let ended = (self.0)(task.clone()).await;
        ended.map(Into::into)
    }
}
