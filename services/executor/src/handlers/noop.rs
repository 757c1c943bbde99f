//! Does nothing.

use async_trait::async_trait;

use crate::{Handler, HandlerResult, RunningTask, Success};

/// Succeeds at once, for measurements.
pub(crate) struct Noop;

#[async_trait]
impl Handler for Noop {
    async fn run(&self, _: &RunningTask) -> HandlerResult {
        Ok(Success::default())
    }
}
