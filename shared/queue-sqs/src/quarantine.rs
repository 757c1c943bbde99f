//! Moves messages that cannot be read to the quarantine queue, where operators inspect them.

use std::sync::Arc;

use dueline_aws::Failure;
use dueline_domain::truncate_text;

use crate::{
    client::{OutgoingMessage, ReceivedMessage},
    job_queue::SqsJobQueue,
    pack::{ENTRIES_MAX, fit},
    wire::QuarantineReason,
};

/// Most bytes of bodies in a request: the limit of SQS, less room for the message attributes.
const BODIES_BYTES_MAX: usize = 1024 * 1024 - 8 * 1024;

/// A message that is malformed, foreign, of a newer version or of another job.
pub(crate) struct UnreadableMessage {
    pub(crate) received: ReceivedMessage,
    pub(crate) reason: QuarantineReason,
}

impl SqsJobQueue {
    /// Quarantines messages in the background. When too many such tasks run, the messages stay invisible until their
    /// visibility timeout passes, so they are not received in a loop.
    pub(crate) fn spawn_quarantine(
        self: &Arc<Self>,
        level: usize,
        messages: Vec<UnreadableMessage>,
    ) {
        if messages.is_empty() || self.quarantine_permits.available_permits() == 0 {
            return;
        }
        let queue = self.clone();
        self.context.request_tasks.spawn(async move {
            let Ok(_permit) = queue.quarantine_permits.try_acquire() else {
                return;
            };
            let mut rest = &messages[..];
            while !rest.is_empty() {
                let sizes = rest.iter().map(|message| message.received.body.len());
                let count = fit(sizes, ENTRIES_MAX, BODIES_BYTES_MAX);
                let (some, others) = rest.split_at(count);
                queue.quarantine(level, some).await;
                rest = others;
            }
        });
    }

    async fn quarantine(&self, level: usize, messages: &[UnreadableMessage]) {
        let source = &self.levels[level].queue;
        let copies: Vec<_> = messages
            .iter()
            .map(|message| message.copy(&source.name))
            .collect();
        let results = match self.copy(&copies).await {
            Ok(results) => results,
            Err(why) => {
                tracing::warn!(
                    queue = source.name,
                    why,
                    "failed to quarantine messages; they are retried after their visibility timeout"
                );
                return;
            }
        };
        let mut handles = Vec::new();
        for (message, result) in messages.iter().zip(results) {
            let reason = message.reason.name();
            match result {
                Ok(()) => {
                    let count =
                        metrics::counter!("dueline_queue_quarantined_total", "reason" => reason);
                    count.increment(1);
                    tracing::warn!(
                        queue = source.name,
                        message = message.received.id,
                        reason,
                        "quarantined a message that cannot be read"
                    );
                    handles.push(message.received.handle.as_str().into());
                }
                Err(failure) => tracing::warn!(
                    queue = source.name, message = message.received.id, reason, why = %failure.message,
                    "failed to quarantine a message; it is retried after its visibility timeout"
                ),
            }
        }
        // A message that cannot be deleted is received again and quarantined once more.
        self.levels[level].deletes.submit(handles).await;
    }

    async fn copy(&self, copies: &[OutgoingMessage]) -> Result<Vec<Result<(), Failure>>, String> {
        let queue = &self.context.quarantine;
        let ensured = queue.ensure(&self.context.request_tasks).await;
        ensured.map_err(|error| error.to_string())?;
        let url = queue.url().await.map_err(|error| error.to_string())?;
        let sent = queue.sqs.send(Some(&self.job), &url, copies).await;
        // Translating the failure forgets the URL of a missing queue, so that the next attempt creates it.
        sent.map_err(|failure| queue.error(&failure).to_string())
    }
}

impl UnreadableMessage {
    fn copy(&self, source: &str) -> OutgoingMessage {
        let body = &self.received.body;
        let kept = truncate_text(body, BODIES_BYTES_MAX);
        let mut attributes = vec![
            ("source_queue", source.to_owned()),
            ("reason", self.reason.name().to_owned()),
        ];
        if !self.received.id.is_empty() {
            attributes.push(("message_id", self.received.id.clone()));
        }
        if kept.len() < body.len() {
            attributes.push(("cut_from_bytes", body.len().to_string()));
        }
        OutgoingMessage {
            body: kept.to_owned(),
            delay_s: 0,
            attributes,
        }
    }
}
