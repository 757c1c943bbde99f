//! Deletes messages in batch requests.

use std::sync::Arc;

use dueline_aws::{Class, Failure};
use dueline_ports::QueueError;

use crate::{managed_queue::ManagedQueue, pack::ENTRIES_MAX, request_batcher::BatchRequest};

/// Deletes messages of one queue by their receipt handles.
pub(crate) struct DeleteRequests(pub(crate) Arc<ManagedQueue>);

impl BatchRequest for DeleteRequests {
    type Item = Arc<str>;
    type Answer = Result<(), QueueError>;
    const COUNT_MAX: usize = ENTRIES_MAX;
    const BYTES_MAX: usize = usize::MAX;
    const IN_FLIGHT_MAX: usize = 16;

    fn bytes(_: &Arc<str>) -> usize {
        0
    }

    async fn run(&self, handles: Vec<Arc<str>>) -> Vec<Result<(), QueueError>> {
        let handles: Vec<_> = handles.iter().map(AsRef::as_ref).collect();
        let result = match self.delete(&handles).await {
            // The messages were deleted together with their queue.
            Err(failure) if failure.class == Class::Missing => {
                self.0.error(&failure);
                Ok(())
            }
            result => result.map_err(|failure| self.0.error(&failure)),
        };
        vec![result; handles.len()]
    }

    fn refused() -> Self::Answer {
        Err(QueueError::Throttled)
    }

    fn unanswered() -> Self::Answer {
        Err(QueueError::Unavailable("the request broke off".into()))
    }
}

impl DeleteRequests {
    async fn delete(&self, handles: &[&str]) -> Result<(), Failure> {
        let Some(job) = &self.0.job else {
            return Ok(());
        };
        let url = self.0.owned_url().await?;
        let results = self.0.sqs.delete(job, &url, handles).await?;
        let again = handles.iter().zip(results);
        let again = again.filter_map(|(handle, result)| {
            let failure = result.err()?;
            failure.class.is_retryable().then_some(*handle)
        });
        let again: Vec<_> = again.collect();
        if !again.is_empty() {
            // One retry is enough: a message that stays is received again, refused as stale, and deleted then.
            let results = self.0.sqs.delete(job, &url, &again).await?;
            let left = results.iter().filter(|result| result.is_err()).count();
            tracing::debug!(
                queue = self.0.name,
                left,
                "retried the deletion of messages"
            );
        }
        Ok(())
    }
}
