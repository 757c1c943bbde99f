//! The queue seam over the queues of all jobs.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, Starving, TaskQueue};
use tokio::time::{Instant, timeout_at};

use crate::{
    config::LocalQueueConfig,
    job_queue::{Common, JobQueue, Locked},
};

/// One bounded queue per job, inside this process. Clones of the `Arc` share it.
///
/// Order is priority, then due time, then arrival. A message that is there, visible or in flight, is not taken twice.
/// No timer runs: messages whose visibility timeout has passed come back when somebody looks, and waiting receivers
/// look at the right moment.
#[derive(Debug)]
pub struct LocalQueue {
    common: Common,
    /// Sorted, so that whoever walks over all jobs does it in the same order each time.
    jobs: RwLock<BTreeMap<JobName, Arc<JobQueue>>>,
}

impl LocalQueue {
    /// No queues yet.
    pub fn new(config: LocalQueueConfig) -> Arc<Self> {
        Arc::new(Self {
            common: Common::new(config.clamped()),
            jobs: RwLock::default(),
        })
    }

    fn queue(&self, job: &JobName) -> Result<Arc<JobQueue>, QueueError> {
        let jobs = self.jobs.read().unwrap_or_else(PoisonError::into_inner);
        jobs.get(job)
            .cloned()
            .ok_or_else(|| QueueError::NotFound(job.clone()))
    }

    /// Does something with each receipt of ours, under one lock per run of the same job. Receipts that are not
    /// ours, or of a queue that is gone, are skipped.
    fn with_receipts(&self, receipts: Vec<Receipt>, act: impl Fn(&mut Locked<'_>, u64)) {
        let mut rest = receipts.into_iter().peekable();
        while let Some(first) = rest.next() {
            let Receipt::Local { job, number } = first else {
                continue;
            };
            let Ok(queue) = self.queue(&job) else {
                continue;
            };
            let mut locked = queue.lock(&self.common);
            act(&mut locked, number);
            while let Some(next) = rest.next_if(|receipt| *receipt.job() == job) {
                if let Receipt::Local { number, .. } = next {
                    act(&mut locked, number);
                }
            }
            locked.finish();
        }
    }

    /// All queues that are hungry now, or else when to look again.
    fn tell_hunger(&self) -> Result<Vec<Starving>, Option<Instant>> {
        let now = Instant::now();
        let queues: Vec<_> = {
            let jobs = self.jobs.read().unwrap_or_else(PoisonError::into_inner);
            jobs.values().cloned().collect()
        };
        let (mut told, mut look_again) = (Vec::new(), None);
        for queue in queues {
            let mut locked = queue.lock(&self.common);
            match locked.tell_hunger(now) {
                Some(starving) => told.push(starving),
                None => {
                    let quiet_until = locked.quiet_until(now);
                    look_again = look_again.into_iter().chain(quiet_until).min();
                }
            }
        }
        if told.is_empty() {
            Err(look_again)
        } else {
            Ok(told)
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
            .or_insert_with(|| Arc::new(JobQueue::new(job.clone(), self.common.config)));
        drop(jobs);
        self.common.hungry.notify_waiters();
        Ok(())
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        let mut jobs = self.jobs.write().unwrap_or_else(PoisonError::into_inner);
        let removed = jobs.remove(job);
        drop(jobs);
        if let Some(queue) = removed {
            queue.remove(&self.common);
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
            let mut locked = queue.lock(&self.common);
            results.push(locked.offer(first));
            while let Some(next) = rest.next_if(|message| message.job == job) {
                results.push(locked.offer(next));
            }
            locked.finish();
        }
        results
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        self.queue(job)?.receive(&self.common, max, wait).await
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.with_receipts(receipts, |locked, number| locked.delete(number));
        Ok(())
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        self.with_receipts(receipts, |locked, number| locked.put_back(number, delay));
        Ok(())
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.with_receipts(receipts, |locked, number| locked.extend(number));
        Ok(())
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        self.queue(job)?.lock(&self.common).depth()
    }

    fn visibility_timeout(&self) -> Duration {
        self.common.config.visibility_timeout
    }

    /// Cancel safe: a queue counts as told only when this answers. Whoever was told and then does not call
    /// `refilled` within five seconds is taken for dead, and the next caller is told.
    async fn starving(&self) -> Vec<Starving> {
        loop {
            // Registered before the look, so that no queue becomes hungry unseen between look and wait.
            let mut hungry = pin!(self.common.hungry.notified());
            hungry.as_mut().enable();
            match self.tell_hunger() {
                Ok(told) => return told,
                Err(Some(look_again)) => {
                    let _ = timeout_at(look_again, hungry).await;
                }
                Err(None) => hungry.await,
            }
        }
    }

    fn refilled(&self, starving: &Starving, complete: bool) {
        if let Ok(queue) = self.queue(&starving.job) {
            queue.lock(&self.common).refilled(starving.epoch, complete);
        }
    }
}
