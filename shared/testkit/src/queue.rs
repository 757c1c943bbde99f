//! A queue that does what queues do: loses, doubles, delays and reorders messages, and fails.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, Starving, TaskQueue};
use tokio::time::Instant;

use crate::Site;

/// How often what happens to a call or message, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFaults {
    /// The call is refused, nothing was done.
    pub unavailable: u32,
    /// The call is done and then reported as failed.
    pub execute_and_timeout: u32,
    /// A sent message is lost although the sender is told that it was sent.
    pub lose: u32,
    /// A sent message arrives twice, the second time late.
    pub double: u32,
    /// A sent message arrives late.
    pub delay: u32,
    /// An entry of a batch fails alone; every other time it was sent all the same.
    pub entry_failed: u32,
    /// A received message does not reach the receiver; it stays invisible until its visibility timeout.
    pub lose_received: u32,
    /// A batch of received messages arrives in another order.
    pub reorder: u32,
    /// How late late messages are at most.
    pub delay_max: Duration,
    /// Longest way there, and longest way back.
    pub latency_max: Duration,
}

/// A queue behind a network.
pub struct FaultyQueue {
    inner: Arc<dyn TaskQueue>,
    site: Site,
    faults: QueueFaults,
    late: Late,
}

/// Messages on their way, with the time of their arrival; shared by all hosts, because a message outlives its sender.
pub(crate) type Late = Arc<Mutex<Vec<(Instant, TaskRef)>>>;

impl FaultyQueue {
    /// Puts a network between a host and its queue.
    pub fn new(inner: Arc<dyn TaskQueue>, site: Site, faults: QueueFaults) -> Self {
        let late = Late::default();
        Self {
            inner,
            site,
            faults,
            late,
        }
    }

    /// The same queue as seen from another host: messages on their way are on their way for both.
    #[must_use]
    pub fn for_site(&self, site: Site) -> Self {
        Self {
            inner: self.inner.clone(),
            site,
            faults: self.faults,
            late: self.late.clone(),
        }
    }

    fn late(&self) -> MutexGuard<'_, Vec<(Instant, TaskRef)>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn enter(&self) -> Result<(), QueueError> {
        self.site.travel(self.faults.latency_max).await;
        self.arrive().await;
        if self.site.is_out() {
            self.site.counters.count("queue outage");
            return Err(QueueError::Unavailable("outage".into()));
        }
        if self.site.roll("queue unavailable", self.faults.unavailable) {
            return Err(QueueError::Unavailable("refused".into()));
        }
        Ok(())
    }

    /// The way back, on which the answer may be lost.
    async fn leave<T>(&self, answer: Result<T, QueueError>) -> Result<T, QueueError> {
        self.site.travel(self.faults.latency_max).await;
        let unheard = self.faults.execute_and_timeout;
        if answer.is_ok() && self.site.roll("queue timed out after", unheard) {
            return Err(QueueError::Unavailable("timed out".into()));
        }
        answer
    }

    /// Delivers what has been on its way long enough.
    async fn arrive(&self) {
        let now = Instant::now();
        let arrived: Vec<TaskRef> = {
            let mut late = self.late();
            let there = late.extract_if(.., |(at, _)| *at <= now);
            there.map(|(_, message)| message).collect()
        };
        if !arrived.is_empty() {
            self.inner.send(arrived).await;
        }
    }

    fn delayed(&self, message: TaskRef) {
        let max_ms = u64::try_from(self.faults.delay_max.as_millis()).unwrap_or(u64::MAX);
        let delay = Duration::from_millis(self.site.rng.below(max_ms.max(1)) + 1);
        self.late().push((Instant::now() + delay, message));
    }

    /// What becomes of one sent message: whether it goes to the queue now, and whether the sender is told so.
    fn fate(&self, message: &TaskRef) -> (bool, bool) {
        let roll = |name, rate| self.site.roll(name, rate);
        if roll("queue entry failed", self.faults.entry_failed) {
            return (roll("queue entry failed but sent", 500), false);
        }
        if roll("message lost", self.faults.lose) {
            return (false, true);
        }
        if roll("message late", self.faults.delay) {
            self.delayed(message.clone());
            return (false, true);
        }
        if roll("message doubled", self.faults.double) {
            self.delayed(message.clone());
        }
        (true, true)
    }
}

#[async_trait]
impl TaskQueue for FaultyQueue {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        self.enter().await?;
        let answer = self.inner.ensure(job).await;
        self.leave(answer).await
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        self.enter().await?;
        let answer = self.inner.remove(job).await;
        self.leave(answer).await
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        if let Err(error) = self.enter().await {
            return messages.iter().map(|_| Err(error.clone())).collect();
        }
        let fates: Vec<_> = messages.iter().map(|message| self.fate(message)).collect();
        let goes = messages.into_iter().zip(&fates).filter(|(_, (go, _))| *go);
        let sent: Vec<TaskRef> = goes.map(|(message, _)| message).collect();
        let mut answers = self.inner.send(sent).await.into_iter();
        let told: Vec<_> = fates
            .into_iter()
            .map(|(goes, told)| {
                let answer = if goes { answers.next() } else { None };
                match told {
                    true => answer.unwrap_or(Ok(())),
                    false => Err(QueueError::Unavailable("entry failed".into())),
                }
            })
            .collect();
        match self.leave(Ok(())).await {
            Ok(()) => told,
            Err(error) => told.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        self.enter().await?;
        let until = Instant::now() + wait;
        let mut got = loop {
            self.arrive().await;
            let now = Instant::now();
            let next = self.late().iter().map(|(at, _)| *at).min();
            let pause = next.map_or(until, |at| at.min(until)).max(now) - now;
            let got = self.inner.receive(job, max, pause).await?;
            if !got.is_empty() || Instant::now() >= until {
                break got;
            }
        };
        let lost = self.faults.lose_received;
        got.retain(|_| !self.site.roll("message lost after receive", lost));
        if got.len() > 1 && self.site.roll("messages reordered", self.faults.reorder) {
            got.reverse();
        }
        self.leave(Ok(got)).await
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.enter().await?;
        let answer = self.inner.ack(receipts).await;
        self.leave(answer).await
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        self.enter().await?;
        let answer = self.inner.nack(receipts, delay).await;
        self.leave(answer).await
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.enter().await?;
        let answer = self.inner.extend(receipts).await;
        self.leave(answer).await
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        self.enter().await?;
        let answer = self.inner.depth(job).await;
        self.leave(answer).await
    }

    fn visibility_timeout(&self) -> Duration {
        self.inner.visibility_timeout()
    }

    async fn starving(&self) -> Vec<Starving> {
        self.site.gate.pass().await;
        let starving = self.inner.starving().await;
        self.site.gate.pass().await;
        starving
    }

    fn refilled(&self, starving: &Starving, complete: bool) {
        if !self.site.gate.is_dead() {
            self.inner.refilled(starving, complete);
        }
    }
}
