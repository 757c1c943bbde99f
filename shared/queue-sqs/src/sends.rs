//! Sends references in batch requests, packing several into a message when many wait.

use std::{sync::Arc, time::Duration};

use dueline_aws::{Class, Failure};
use dueline_ports::QueueError;
use tokio::time::sleep;

use crate::{
    client::OutgoingMessage,
    managed_queue::ManagedQueue,
    pack::{REFERENCE_BYTES_MAX, REFERENCES_PER_REQUEST_MAX, spread},
    request_batcher::BatchRequest,
    wire,
};

/// Pause before a send to a queue that was just created is retried.
const NEW_QUEUE_PAUSE: Duration = Duration::from_millis(250);

/// Sends encoded references to one queue.
pub(crate) struct SendRequests(pub(crate) Arc<ManagedQueue>);

impl BatchRequest for SendRequests {
    type Item = String;
    type Answer = Result<(), QueueError>;
    const COUNT_MAX: usize = REFERENCES_PER_REQUEST_MAX;
    const BYTES_MAX: usize = REFERENCE_BYTES_MAX;
    const IN_FLIGHT_MAX: usize = 4;

    fn bytes(reference: &String) -> usize {
        reference.len() + 1
    }

    async fn run(&self, references: Vec<String>) -> Vec<Result<(), QueueError>> {
        send(&self.0, &references, 0, 0).await
    }

    fn refused() -> Self::Answer {
        Err(QueueError::Throttled)
    }

    fn unanswered() -> Self::Answer {
        Err(QueueError::Unavailable("the request broke off".into()))
    }
}

/// Sends references with one request. Returns a result for each.
pub(crate) async fn send(
    queue: &ManagedQueue,
    references: &[String],
    received_before: u32,
    delay_s: i32,
) -> Vec<Result<(), QueueError>> {
    let Some(job) = &queue.job else {
        return Vec::new();
    };
    let message = |range: std::ops::Range<usize>| {
        let references = references[range].iter().map(String::as_str);
        OutgoingMessage {
            body: wire::body(job, received_before, references),
            delay_s,
            attributes: Vec::new(),
        }
    };
    let messages: Vec<_> = spread(references.len()).map(message).collect();
    let by_message = match try_send(queue, &messages).await {
        Ok(by_message) => by_message,
        Err(failure) => vec![Err(failure); messages.len()],
    };
    let by_message = by_message.into_iter().zip(spread(references.len()));
    by_message
        .flat_map(|(result, range)| {
            let result = result.map_err(|failure| queue.error(&failure));
            std::iter::repeat_n(result, range.len())
        })
        .collect()
}

async fn try_send(
    queue: &ManagedQueue,
    messages: &[OutgoingMessage],
) -> Result<Vec<Result<(), Failure>>, Failure> {
    loop {
        let url = queue.owned_url().await?;
        let sent = queue.sqs.send(queue.job.as_ref(), &url, messages).await;
        match sent {
            Err(failure) if failure.class == Class::Missing && queue.is_recently_created() => {
                sleep(NEW_QUEUE_PAUSE).await;
            }
            sent => return sent,
        }
    }
}
