//! The `noop` handler.

use async_trait::async_trait;

use crate::{Handler, HandlerResult, RunningTask, Success};

/// Succeeds at once; for measurements.
pub(crate) struct NoopHandler;

#[async_trait]
impl Handler for NoopHandler {
    async fn run(&self, _: &RunningTask) -> HandlerResult {
        Ok(Success::default())
    }
}
