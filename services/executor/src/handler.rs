//! What runs a task.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use dueline_domain::RetryClass;

use crate::RunningTask;

/// Code that runs tasks. One value runs many tasks at once; what they share lives in `self`.
///
/// A run should end soon after [`RunningTask::stopped`] fires. If it does not, its future is dropped after the kill
/// grace, so it must not leave anything half done that dropping cannot undo. A panic counts as a failed run. Code
/// that blocks its thread cannot be stopped and belongs on a blocking thread.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one task. The answer says how it ended, unless the task was finished explicitly before.
    async fn run(&self, task: &RunningTask) -> HandlerResult;
}

/// How a run ended, in the handler's words.
pub type HandlerResult = Result<Success, Failure>;

/// A run that did what it should.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Success {
    /// What it returns to whoever waits for the task.
    pub result: Option<Bytes>,
}

impl From<()> for Success {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Bytes> for Success {
    fn from(result: Bytes) -> Self {
        let result = Some(result);
        Self { result }
    }
}

impl From<Vec<u8>> for Success {
    fn from(result: Vec<u8>) -> Self {
        Bytes::from(result).into()
    }
}

impl From<String> for Success {
    fn from(result: String) -> Self {
        Bytes::from(result).into()
    }
}

/// A run that did not. Everything that can be shown becomes one that is tried again as the job's policy says, so
/// `?` works on any error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Trying again may help.
    Retriable {
        /// Why, as far as waiting is concerned.
        class: RetryClass,
        /// A wait that the handler asks for instead of the backoff.
        delay: Option<Duration>,
        /// What went wrong.
        error: String,
    },
    /// Trying again is of no use.
    Fatal {
        /// What went wrong.
        error: String,
    },
    /// The run ended because it was told to stop.
    Cancelled,
}

impl Failure {
    /// Trying again may help, with the waits of `class`.
    pub fn retriable(class: RetryClass, error: impl Into<String>) -> Self {
        let (delay, error) = (None, error.into());
        Self::Retriable {
            class,
            delay,
            error,
        }
    }

    /// Trying again is of no use.
    pub fn fatal(error: impl Into<String>) -> Self {
        let error = error.into();
        Self::Fatal { error }
    }
}

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retriable(RetryClass::Standard, format!("{error:#}"))
    }
}

/// Makes a handler of an async closure. What it captures is the context that all its runs share:
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_errors_are_retriable_in_the_standard_class() {
        let standard = |error: &str| Failure::retriable(RetryClass::Standard, error);
        assert_eq!(Failure::from("no"), standard("no"));
        assert_eq!(Failure::from(String::from("no")), standard("no"));
        let parse = "x".parse::<u8>().unwrap_err();
        assert_eq!(
            Failure::from(parse),
            standard("invalid digit found in string")
        );
    }
}
