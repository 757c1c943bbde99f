//! Sends references, several to a message when many are on hand.

use std::{sync::Arc, time::Duration};

use dueline_aws::{Class, Failure};
use dueline_ports::QueueError;
use tokio::time::sleep;

use crate::{
    lane::Batch,
    pack::{REFERENCE_BYTES_MAX, REFERENCES_PER_REQUEST_MAX, spread},
    place::Place,
    service::Outgoing,
    wire,
};

/// Pause before a queue that was just made is tried again.
const YOUNG_PAUSE: Duration = Duration::from_millis(250);

/// The references that go to one queue, as they stand in a body.
pub(crate) struct Sends(pub(crate) Arc<Place>);

impl Batch for Sends {
    type Item = String;
    type Answer = Result<(), QueueError>;
    const COUNT_MAX: usize = REFERENCES_PER_REQUEST_MAX;
    const BYTES_MAX: usize = REFERENCE_BYTES_MAX;
    const UNDER_WAY_MAX: usize = 4;

    fn bytes(reference: &String) -> usize {
        reference.len() + 1
    }

    async fn run(&self, references: Vec<String>) -> Vec<Result<(), QueueError>> {
        send(&self.0, &references, 0, 0).await
    }

    fn refused() -> Self::Answer {
        Err(QueueError::Throttled)
    }

    fn lost() -> Self::Answer {
        Err(QueueError::Unavailable("the request broke off".into()))
    }
}

/// Sends references with one request; an answer for each.
pub(crate) async fn send(
    place: &Place,
    references: &[String],
    received_before: u32,
    delay_s: i32,
) -> Vec<Result<(), QueueError>> {
    let Some(job) = &place.job else {
        return Vec::new();
    };
    let message = |range: std::ops::Range<usize>| {
        let references = references[range].iter().map(String::as_str);
        Outgoing {
            body: wire::body(job, received_before, references),
            delay_s,
            attributes: Vec::new(),
        }
    };
    let messages: Vec<_> = spread(references.len()).map(message).collect();
    let by_message = match try_send(place, &messages).await {
        Ok(by_message) => by_message,
        Err(failure) => vec![Err(failure); messages.len()],
    };
    let by_message = by_message.into_iter().zip(spread(references.len()));
    by_message
        .flat_map(|(result, range)| {
            let result = result.map_err(|failure| place.error(&failure));
            std::iter::repeat_n(result, range.len())
        })
        .collect()
}

async fn try_send(
    place: &Place,
    messages: &[Outgoing],
) -> Result<Vec<Result<(), Failure>>, Failure> {
    loop {
        let url = place.look_up().await?;
        let sent = place.service.send(place.job.as_ref(), &url, messages).await;
        match sent {
            Err(failure) if failure.class == Class::Missing && place.is_young() => {
                sleep(YOUNG_PAUSE).await;
            }
            sent => return sent,
        }
    }
}
