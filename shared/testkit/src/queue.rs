//! A queue that does what queues do: loses, doubles, delays and reorders messages, and fails.

use std::{
    collections::BTreeMap,
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
    /// The queues have room for everything and ask for nothing, as those of a service do.
    pub never_starving: bool,
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
    service: Arc<Mutex<Service>>,
}

/// What all hosts see of the queues.
#[derive(Default)]
struct Service {
    /// Messages on their way, with the time of their arrival: a message outlives its sender.
    late: Vec<(Instant, TaskRef)>,
    /// Queues that were deleted, and when they can be made again.
    deleted: BTreeMap<JobName, Instant>,
}

impl FaultyQueue {
    /// Puts a network between a host and its queue.
    pub fn new(inner: Arc<dyn TaskQueue>, site: Site, faults: QueueFaults) -> Self {
        let service = Arc::default();
        Self {
            inner,
            site,
            faults,
            service,
        }
    }

    /// The same queue as seen from another host: messages on their way are on their way for both.
    #[must_use]
    pub fn for_site(&self, site: Site) -> Self {
        Self {
            inner: self.inner.clone(),
            site,
            faults: self.faults,
            service: self.service.clone(),
        }
    }

    /// Somebody deletes the queue of `job` with all that is in it. Nobody can make it again for this long, as with a
    /// service that forgets a name slowly; while the faults of a host are off, it can.
    pub async fn delete(&self, job: &JobName, blocked_for: Duration) -> Result<(), QueueError> {
        let until = Instant::now() + blocked_for;
        self.service().deleted.insert(job.clone(), until);
        self.inner.remove(job).await
    }

    fn is_blocked(&self, job: &JobName) -> bool {
        let service = self.service();
        let until = service.deleted.get(job);
        let is_blocked = until.is_some_and(|until| Instant::now() < *until);
        is_blocked && self.site.faults.is_on()
    }

    fn service(&self) -> MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of an answer.
    fn count<T>(&self, answer: &Result<T, QueueError>) {
        // No room is no error: the queue asks for the rest by itself.
        if !matches!(answer, Ok(_) | Err(QueueError::Full(_))) {
            self.site.counters.count("queue answered an error");
        }
    }

    async fn enter(&self) -> Result<(), QueueError> {
        let entered = self.try_enter().await;
        self.count(&entered);
        entered
    }

    async fn try_enter(&self) -> Result<(), QueueError> {
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
        let answer = match answer {
            Ok(_) if self.site.roll("queue timed out after", unheard) => {
                Err(QueueError::Unavailable("timed out".into()))
            }
            answer => answer,
        };
        self.count(&answer);
        answer
    }

    /// Delivers what has been on its way long enough.
    async fn arrive(&self) {
        let now = Instant::now();
        let arrived: Vec<TaskRef> = {
            let mut service = self.service();
            let there = service.late.extract_if(.., |(at, _)| *at <= now);
            there.map(|(_, message)| message).collect()
        };
        if !arrived.is_empty() {
            self.inner.send(arrived).await;
        }
    }

    fn delayed(&self, message: TaskRef) {
        let max_ms = u64::try_from(self.faults.delay_max.as_millis()).unwrap_or(u64::MAX);
        let delay = Duration::from_millis(self.site.rng.below(max_ms.max(1)) + 1);
        let at = Instant::now() + delay;
        self.service().late.push((at, message));
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
        let answer = if self.is_blocked(job) {
            self.site.counters.count("queue not made again yet");
            Err(QueueError::Unavailable("deleted a moment ago".into()))
        } else {
            self.inner.ensure(job).await
        };
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
            Ok(()) => {
                told.iter().for_each(|answer| self.count(answer));
                told
            }
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
            let next = self.service().late.iter().map(|(at, _)| *at).min();
            let pause = next.map_or(until, |at| at.min(until)).max(now) - now;
            let got = self.inner.receive(job, max, pause).await;
            self.count(&got);
            let got = got?;
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
        if self.faults.never_starving {
            return std::future::pending().await;
        }
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
