//! Deletes messages.

use std::sync::Arc;

use dueline_aws::{Class, Failure};
use dueline_ports::QueueError;

use crate::{lane::Batch, pack::ENTRIES_MAX, place::Place};

/// The messages of one queue that are done, by their handles.
pub(crate) struct Deletes(pub(crate) Arc<Place>);

impl Batch for Deletes {
    type Item = Arc<str>;
    type Answer = Result<(), QueueError>;
    const COUNT_MAX: usize = ENTRIES_MAX;
    const BYTES_MAX: usize = usize::MAX;
    const UNDER_WAY_MAX: usize = 16;

    fn bytes(_: &Arc<str>) -> usize {
        0
    }

    async fn run(&self, handles: Vec<Arc<str>>) -> Vec<Result<(), QueueError>> {
        let handles: Vec<_> = handles.iter().map(AsRef::as_ref).collect();
        let result = match self.delete(&handles).await {
            // A receipt of a queue that is gone deletes nothing.
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

    fn lost() -> Self::Answer {
        Err(QueueError::Unavailable("the request broke off".into()))
    }
}

impl Deletes {
    async fn delete(&self, handles: &[&str]) -> Result<(), Failure> {
        let Some(job) = &self.0.job else {
            return Ok(());
        };
        let url = self.0.look_up().await?;
        let results = self.0.service.delete(job, &url, handles).await?;
        let again = handles.iter().zip(results);
        let again = again.filter_map(|(handle, result)| {
            let failure = result.err()?;
            failure.class.is_retryable().then_some(*handle)
        });
        let again: Vec<_> = again.collect();
        if !again.is_empty() {
            // Once is enough: what stays comes back, is refused as stale, and is deleted then.
            let results = self.0.service.delete(job, &url, &again).await?;
            let left = results.iter().filter(|result| result.is_err()).count();
            tracing::debug!(
                queue = self.0.name,
                left,
                "deleted messages at the second try"
            );
        }
        Ok(())
    }
}
