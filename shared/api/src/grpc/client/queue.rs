//! The queues of a server, for a controller on another host.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef, limits};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, TaskQueue};
use tonic::transport::Channel;

use super::{
    Remote,
    batch::{answers, send_in_chunks, values},
    errors::Effect::{Reads, Writes},
};
use crate::{
    ApiError,
    check::WAIT_MAX,
    grpc::{
        convert::{
            field::{count, millis},
            queue_error,
        },
        message::MESSAGE_BYTES_MAX,
        proto::{self, queue_client},
    },
};

/// The visibility timeout until the server has sent its own, in milliseconds. Rather too short: a caller that uses it
/// only extends more often than needed.
const VISIBILITY_TIMEOUT_INITIAL_MS: u64 = 10_000;

/// The queues of a server. Removing queues is the server's own business, and so is filling the ones that ran out of
/// room: [`TaskQueue::remove`] is refused, and [`TaskQueue::refill_demand`] never answers.
#[derive(Clone, Debug)]
pub struct QueueClient {
    remote: Remote,
    visibility_timeout_ms: Arc<AtomicU64>,
}

impl QueueClient {
    pub(super) fn new(remote: Remote) -> Self {
        let initial = AtomicU64::new(VISIBILITY_TIMEOUT_INITIAL_MS);
        Self {
            remote,
            visibility_timeout_ms: Arc::new(initial),
        }
    }

    fn client(&self) -> queue_client::QueueClient<Channel> {
        queue_client::QueueClient::new(self.remote.channel())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn send_some(&self, messages: Vec<proto::TaskRef>) -> Vec<Result<(), ApiError>> {
        let asked = messages.len();
        let mut client = self.client();
        let call = client.send(proto::SendRequest { messages });
        let answered = self.remote.call(Writes, Duration::ZERO, call).await;
        let read = |result: proto::SendResult| result.error.map_or(Ok(()), |e| Err(e.into()));
        answers(asked, answered.map(|answer| answer.results), read)
    }
}

#[async_trait]
impl TaskQueue for QueueClient {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        let mut client = self.client();
        let call = client.ensure(proto::EnsureRequest {
            job: job.to_string(),
        });
        let answer = self.remote.call(Writes, Duration::ZERO, call).await;
        let answer = answer.map_err(|error| queue_error(&error, job))?;
        self.visibility_timeout_ms
            .store(answer.visibility_timeout_ms, Ordering::Relaxed);
        Ok(())
    }

    async fn remove(&self, _: &JobName) -> Result<(), QueueError> {
        let text = "queues are not removed from another host";
        Err(QueueError::Invalid(Arc::from(text)))
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        let jobs: Vec<_> = messages.iter().map(|m| m.job.clone()).collect();
        let messages = messages.into_iter().map(Into::into).collect();
        let len_max = limits().batch_len_max;
        let sent = send_in_chunks(messages, len_max, |some| self.send_some(some)).await;
        let answer = |(answer, job): (Result<(), ApiError>, &JobName)| {
            answer.map_err(|error| queue_error(&error, job))
        };
        sent.into_iter().zip(&jobs).map(answer).collect()
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let wait = wait.min(WAIT_MAX);
        let mut client = self.client();
        let call = client.receive(proto::ReceiveRequest {
            job: job.to_string(),
            messages_max: count(max.min(limits().batch_len_max)),
            wait_ms: millis(wait),
        });
        let answer = self.remote.call(Reads, wait, call).await;
        let answer = answer.map_err(|error| queue_error(&error, job))?;
        self.visibility_timeout_ms
            .store(answer.visibility_timeout_ms, Ordering::Relaxed);
        values(answer.deliveries).map_err(|error| queue_error(&error, job))
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        for some in receipts.chunks(limits().batch_len_max) {
            let receipts = wire(some);
            let mut client = self.client();
            let call = client.ack(proto::AckRequest { receipts });
            let answer = self.remote.call(Writes, Duration::ZERO, call).await;
            answer.map_err(|error| queue_error(&error, some[0].job()))?;
        }
        Ok(())
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        for some in receipts.chunks(limits().batch_len_max) {
            let receipts = wire(some);
            let delay_ms = millis(delay);
            let mut client = self.client();
            let call = client.nack(proto::NackRequest { receipts, delay_ms });
            let answer = self.remote.call(Writes, Duration::ZERO, call).await;
            answer.map_err(|error| queue_error(&error, some[0].job()))?;
        }
        Ok(())
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        for some in receipts.chunks(limits().batch_len_max) {
            let receipts = wire(some);
            let mut client = self.client();
            let call = client.extend(proto::ExtendRequest { receipts });
            let answer = self.remote.call(Writes, Duration::ZERO, call).await;
            answer.map_err(|error| queue_error(&error, some[0].job()))?;
        }
        Ok(())
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        let mut client = self.client();
        let call = client.depth(proto::DepthRequest {
            job: job.to_string(),
        });
        let answer = self.remote.call(Reads, Duration::ZERO, call).await;
        let answer = answer.map_err(|error| queue_error(&error, job))?;
        Ok(Depth {
            visible: answer.visible,
            in_flight: answer.in_flight,
        })
    }

    fn visibility_timeout(&self) -> Duration {
        Duration::from_millis(self.visibility_timeout_ms.load(Ordering::Relaxed))
    }
}

fn wire(receipts: &[Receipt]) -> Vec<proto::Receipt> {
    receipts.iter().cloned().map(Into::into).collect()
}
