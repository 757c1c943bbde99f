//! Sits directly on a queue and records what was sent and deleted.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskId, TaskRef, Token};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, Starving, TaskQueue};

use super::{History, What};

/// A queue whose messages are recorded as they come and go.
pub struct RecordingQueue {
    inner: Arc<dyn TaskQueue>,
    history: History,
    received: Mutex<HashMap<Receipt, (TaskId, Token)>>,
}

impl RecordingQueue {
    /// Records into `history` what happens to `inner`.
    pub fn new(inner: Arc<dyn TaskQueue>, history: History) -> Self {
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
            self.history.record(What::MessageSent { id, token });
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
            let of = (delivery.task.id, delivery.task.token);
            received.insert(delivery.receipt.clone(), of);
        }
        drop(received);
        Ok(got)
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        {
            let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            for receipt in &receipts {
                if let Some((id, token)) = received.remove(receipt) {
                    self.history.record(What::MessageDeleted { id, token });
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

    async fn starving(&self) -> Vec<Starving> {
        self.inner.starving().await
    }

    fn refilled(&self, starving: &Starving, complete: bool) {
        self.inner.refilled(starving, complete);
    }
}
