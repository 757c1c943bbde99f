//! A queue that is used wrong.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, Starving, TaskQueue};

/// A queue whose user deletes what it receives at once.
pub(crate) struct HastyQueue(pub(crate) Arc<dyn TaskQueue>);

#[async_trait]
impl TaskQueue for HastyQueue {
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
        let got = self.0.receive(job, max, wait).await?;
        let receipts = got.iter().map(|delivery| delivery.receipt.clone());
        self.0.ack(receipts.collect()).await?;
        Ok(got)
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

    async fn starving(&self) -> Vec<Starving> {
        self.0.starving().await
    }

    fn refilled(&self, starving: &Starving, complete: bool) {
        self.0.refilled(starving, complete);
    }
}
