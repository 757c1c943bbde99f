//! A queue for tests of components that send messages.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef};

use crate::{Delivery, Depth, QueueError, Receipt, TaskQueue};

/// A queue that records its messages in the order of their sends. Each message is received once; receipts are ignored.
///
/// As with any [`TaskQueue`], `ensure` must create a queue before a message can be sent to it.
#[derive(Debug, Default)]
pub struct MessageLog {
    queues: Mutex<BTreeMap<JobName, Vec<TaskRef>>>,
    refused: Option<JobName>,
}

impl MessageLog {
    /// A queue whose `ensure` fails for `job`.
    pub fn refusing(job: JobName) -> Self {
        Self {
            refused: Some(job),
            ..Self::default()
        }
    }

    /// Whether the queue of `job` exists.
    pub fn exists(&self, job: &str) -> bool {
        self.lock().contains_key(job)
    }

    /// Messages of `job` that were not received, oldest first.
    pub fn of(&self, job: &str) -> Vec<TaskRef> {
        self.lock().get(job).cloned().unwrap_or_default()
    }

    /// Removes and returns up to `max` messages of `job`, oldest first.
    pub fn take(&self, job: &str, max: usize) -> Vec<TaskRef> {
        let mut queues = self.lock();
        let Some(messages) = queues.get_mut(job) else {
            return Vec::new();
        };
        messages.drain(..max.min(messages.len())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobName, Vec<TaskRef>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TaskQueue for MessageLog {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        if self.refused.as_ref() == Some(job) {
            return Err(QueueError::Throttled);
        }
        self.lock().entry(job.clone()).or_default();
        Ok(())
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        self.lock().remove(job);
        Ok(())
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        // Yields, so that a test can drop the caller between its write and its message.
        tokio::task::yield_now().await;
        let mut queues = self.lock();
        let send = |message: TaskRef| {
            let queue = queues.get_mut(&message.job);
            let missing = || QueueError::NotFound(message.job.clone());
            queue.ok_or_else(missing)?.push(message);
            Ok(())
        };
        messages.into_iter().map(send).collect()
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let mut messages = self.take(job.as_str(), max);
        if messages.is_empty() {
            tokio::time::sleep(wait).await;
            messages = self.take(job.as_str(), max);
        }
        let delivery = |task: TaskRef| Delivery {
            receipt: Receipt::Local {
                job: task.job.clone(),
                number: 0,
            },
            task,
            received: 1,
        };
        Ok(messages.into_iter().map(delivery).collect())
    }

    async fn ack(&self, _: Vec<Receipt>) -> Result<(), QueueError> {
        Ok(())
    }

    async fn nack(&self, _: Vec<Receipt>, _: Duration) -> Result<(), QueueError> {
        Ok(())
    }

    async fn extend(&self, _: Vec<Receipt>) -> Result<(), QueueError> {
        Ok(())
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        Ok(Depth {
            visible: self.of(job.as_str()).len() as u64,
            in_flight: 0,
        })
    }

    fn visibility_timeout(&self) -> Duration {
        Duration::from_secs(30)
    }
}
