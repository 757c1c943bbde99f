//! A queue whose messages are deleted too early.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, RefillDemand, TaskQueue};

/// A queue that deletes messages as soon as they are received.
pub(crate) struct AckOnReceiveQueue(pub(crate) Arc<dyn TaskQueue>);

#[async_trait]
impl TaskQueue for AckOnReceiveQueue {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        self.0.ensure(job).await
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        self.0.remove(job).await
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        self.0.send(messages).await
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let deliveries = self.0.receive(job, max, wait).await?;
        let receipts = deliveries.iter().map(|delivery| delivery.receipt.clone());
        self.0.ack(receipts.collect()).await?;
        Ok(deliveries)
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.0.ack(receipts).await
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        self.0.nack(receipts, delay).await
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.0.extend(receipts).await
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        self.0.depth(job).await
    }

    fn visibility_timeout(&self) -> Duration {
        self.0.visibility_timeout()
    }

    async fn refill_demand(&self) -> Vec<RefillDemand> {
        self.0.refill_demand().await
    }

    fn refilled(&self, refill_demand: &RefillDemand, complete: bool) {
        self.0.refilled(refill_demand, complete);
    }
}
