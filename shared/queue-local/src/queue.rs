//! The queue seam over the queues of all jobs.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, RefillDemand, TaskQueue};
use tokio::time::{Instant, timeout_at};

use crate::{
    config::LocalQueueConfig,
    job_queue::{JobQueue, LockedJobQueue, SharedQueueState},
};

/// One bounded queue per job, inside this process. Clones of the `Arc` share it.
///
/// Order is priority, then due time, then arrival. A message that is already in the queue, visible or in flight, is
/// not added twice. No timer runs: each receive makes messages visible whose visibility timeout has passed, and a
/// waiting receiver wakes at the next such deadline.
#[derive(Debug)]
pub struct LocalQueue {
    shared: SharedQueueState,
    /// Sorted, so that loops over all jobs always run in the same order.
    jobs: RwLock<BTreeMap<JobName, Arc<JobQueue>>>,
}

impl LocalQueue {
    /// No queues yet.
    pub fn new(config: LocalQueueConfig) -> Arc<Self> {
        Arc::new(Self {
            shared: SharedQueueState::new(config.clamped()),
            jobs: RwLock::default(),
        })
    }

    fn queue(&self, job: &JobName) -> Result<Arc<JobQueue>, QueueError> {
        let jobs = self.jobs.read().unwrap_or_else(PoisonError::into_inner);
        jobs.get(job)
            .cloned()
            .ok_or_else(|| QueueError::NotFound(job.clone()))
    }

    /// Calls `act` for each local receipt. Consecutive receipts of the same job share one lock. Foreign receipts,
    /// and receipts of a removed queue, are skipped.
    fn with_receipts(&self, receipts: Vec<Receipt>, act: impl Fn(&mut LockedJobQueue<'_>, u64)) {
        let mut rest = receipts.into_iter().peekable();
        while let Some(first) = rest.next() {
            let Receipt::Local { job, number } = first else {
                continue;
            };
            let Ok(queue) = self.queue(&job) else {
                continue;
            };
            let mut locked = queue.lock(&self.shared);
            act(&mut locked, number);
            while let Some(next) = rest.next_if(|receipt| *receipt.job() == job) {
                if let Receipt::Local { number, .. } = next {
                    act(&mut locked, number);
                }
            }
            locked.unlock_and_notify();
        }
    }

    /// The demands that can be reported now. Without any, the error is when to check again.
    fn report_demand(&self) -> Result<Vec<RefillDemand>, Option<Instant>> {
        let now = Instant::now();
        let queues: Vec<_> = {
            let jobs = self.jobs.read().unwrap_or_else(PoisonError::into_inner);
            jobs.values().cloned().collect()
        };
        let (mut demands, mut recheck_at) = (Vec::new(), None);
        for queue in queues {
            let mut locked = queue.lock(&self.shared);
            match locked.report_demand(now) {
                Some(refill_demand) => demands.push(refill_demand),
                None => {
                    let quiet_until = locked.quiet_until(now);
                    recheck_at = recheck_at.into_iter().chain(quiet_until).min();
                }
            }
        }
        if demands.is_empty() {
            Err(recheck_at)
        } else {
            Ok(demands)
        }
    }
}

#[async_trait]
impl TaskQueue for LocalQueue {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        if self.queue(job).is_ok() {
            return Ok(());
        }
        let mut jobs = self.jobs.write().unwrap_or_else(PoisonError::into_inner);
        jobs.entry(job.clone())
            .or_insert_with(|| Arc::new(JobQueue::new(job.clone(), self.shared.config)));
        drop(jobs);
        self.shared.demand_changed.notify_waiters();
        Ok(())
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        let mut jobs = self.jobs.write().unwrap_or_else(PoisonError::into_inner);
        let removed = jobs.remove(job);
        drop(jobs);
        if let Some(queue) = removed {
            queue.remove(&self.shared);
        }
        Ok(())
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        let mut results = Vec::with_capacity(messages.len());
        let mut rest = messages.into_iter().peekable();
        while let Some(first) = rest.next() {
            let queue = match self.queue(&first.job) {
                Ok(queue) => queue,
                Err(error) => {
                    results.push(Err(error));
                    continue;
                }
            };
            let job = first.job.clone();
            let mut locked = queue.lock(&self.shared);
            results.push(locked.add(first));
            while let Some(next) = rest.next_if(|message| message.job == job) {
                results.push(locked.add(next));
            }
            locked.unlock_and_notify();
        }
        results
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        self.queue(job)?.receive(&self.shared, max, wait).await
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.with_receipts(receipts, |locked, number| locked.delete(number));
        Ok(())
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        self.with_receipts(receipts, |locked, number| locked.nack(number, delay));
        Ok(())
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.with_receipts(receipts, |locked, number| locked.extend(number));
        Ok(())
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        self.queue(job)?.lock(&self.shared).depth()
    }

    fn visibility_timeout(&self) -> Duration {
        self.shared.config.visibility_timeout
    }

    /// Cancel safe: a demand counts as reported only when this call answers. A caller that does not call `refilled`
    /// within five seconds is assumed dead, and the demand is reported to the next caller.
    async fn refill_demand(&self) -> Vec<RefillDemand> {
        loop {
            // Register for notifications before the check, so that a demand that arises between check and wait is not
            // missed.
            let mut demand_changed = pin!(self.shared.demand_changed.notified());
            demand_changed.as_mut().enable();
            match self.report_demand() {
                Ok(demands) => return demands,
                Err(Some(recheck_at)) => {
                    let _ = timeout_at(recheck_at, demand_changed).await;
                }
                Err(None) => demand_changed.await,
            }
        }
    }

    fn refilled(&self, refill_demand: &RefillDemand, complete: bool) {
        if let Ok(queue) = self.queue(&refill_demand.job) {
            queue
                .lock(&self.shared)
                .refilled(refill_demand.epoch, complete);
        }
    }
}
