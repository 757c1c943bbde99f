//! Records the messages that are sent to a queue and deleted from it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskId, TaskRef, Token};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, RefillDemand, TaskQueue};

use super::{EventHistory, HistoryEvent};

/// A queue whose sent and deleted messages are recorded.
pub struct RecordingQueue {
    inner: Arc<dyn TaskQueue>,
    history: EventHistory,
    received: Mutex<HashMap<Receipt, (TaskId, Token)>>,
}

impl RecordingQueue {
    /// Records the messages of `inner` in `history`.
    pub fn new(inner: Arc<dyn TaskQueue>, history: EventHistory) -> Self {
        let received = Mutex::default();
        Self {
            inner,
            history,
            received,
        }
    }
}

#[async_trait]
impl TaskQueue for RecordingQueue {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        self.inner.ensure(job).await
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        self.inner.remove(job).await
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        for message in &messages {
            let (id, token) = (message.id, message.token);
            self.history.record(HistoryEvent::MessageSent { id, token });
        }
        self.inner.send(messages).await
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let got = self.inner.receive(job, max, wait).await?;
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        for delivery in &got {
            let message = (delivery.task.id, delivery.task.token);
            received.insert(delivery.receipt.clone(), message);
        }
        drop(received);
        Ok(got)
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        {
            let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            for receipt in &receipts {
                if let Some((id, token)) = received.remove(receipt) {
                    self.history
                        .record(HistoryEvent::MessageDeleted { id, token });
                }
            }
        }
        self.inner.ack(receipts).await
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        self.inner.nack(receipts, delay).await
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.inner.extend(receipts).await
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        self.inner.depth(job).await
    }

    fn visibility_timeout(&self) -> Duration {
        self.inner.visibility_timeout()
    }

    async fn refill_demand(&self) -> Vec<RefillDemand> {
        self.inner.refill_demand().await
    }

    fn refilled(&self, demand: &RefillDemand, complete: bool) {
        self.inner.refilled(demand, complete);
    }
}
