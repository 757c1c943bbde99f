//! A queue that fails, and that loses, doubles, delays and reorders messages.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, Depth, QueueError, Receipt, RefillDemand, TaskQueue};
use tokio::time::Instant;

use crate::FaultInjector;

/// Probabilities of the faults of a call or message, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFaults {
    /// The call is refused and has no effect.
    pub unavailable: u32,
    /// The call takes effect and then fails.
    pub execute_and_timeout: u32,
    /// A sent message is lost although its send succeeds.
    pub lose: u32,
    /// A sent message arrives twice, the second time late.
    pub double: u32,
    /// A sent message arrives late.
    pub delay: u32,
    /// A single entry of a batch fails. Half of these messages are sent nevertheless.
    pub entry_failed: u32,
    /// A received message does not reach the receiver. It stays invisible until its visibility timeout.
    pub lose_received: u32,
    /// A batch of received messages arrives in reverse order.
    pub reorder: u32,
    /// Whether the queues have no refill demand, like those of a queue service.
    pub unbounded: bool,
    /// Longest delay of a late message.
    pub delay_max: Duration,
    /// Longest latency of a request, and of its response.
    pub latency_max: Duration,
}

/// A queue behind a network.
pub struct FaultyQueue {
    inner: Arc<dyn TaskQueue>,
    injector: FaultInjector,
    faults: QueueFaults,
    service: Arc<Mutex<SharedQueueState>>,
}

/// The state of the queue service that all hosts share.
#[derive(Default)]
struct SharedQueueState {
    /// Messages in transit, with the time of their arrival. They arrive even if their sender has crashed.
    late: Vec<(Instant, TaskRef)>,
    /// Deleted queues, and when they can be created again.
    deleted: BTreeMap<JobName, Instant>,
}

impl FaultyQueue {
    /// A faulty network between a host and its queue.
    pub fn new(inner: Arc<dyn TaskQueue>, injector: FaultInjector, faults: QueueFaults) -> Self {
        let service = Arc::default();
        Self {
            inner,
            injector,
            faults,
            service,
        }
    }

    /// The same queue for another host. Both share the messages in transit.
    #[must_use]
    pub fn for_injector(&self, injector: FaultInjector) -> Self {
        Self {
            inner: self.inner.clone(),
            injector,
            faults: self.faults,
            service: self.service.clone(),
        }
    }

    /// Deletes the queue of `job` with its messages, as an operator would. It cannot be created again for
    /// `blocked_for`, as on SQS, except by a host whose faults are off.
    pub async fn delete(&self, job: &JobName, blocked_for: Duration) -> Result<(), QueueError> {
        let until = Instant::now() + blocked_for;
        self.service().deleted.insert(job.clone(), until);
        self.inner.remove(job).await
    }

    fn is_blocked(&self, job: &JobName) -> bool {
        let service = self.service();
        let until = service.deleted.get(job);
        let is_blocked = until.is_some_and(|until| Instant::now() < *until);
        is_blocked && self.injector.faults.is_on()
    }

    fn service(&self) -> MutexGuard<'_, SharedQueueState> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an answer that is an error.
    fn count<T>(&self, answer: &Result<T, QueueError>) {
        // A full queue is not counted: it requests the messages later.
        if !matches!(answer, Ok(_) | Err(QueueError::Full(_))) {
            self.injector.counters.count("queue answered an error");
        }
    }

    /// Sends a request over the network. An error means that the call does not reach the queue.
    async fn send_request(&self) -> Result<(), QueueError> {
        let arrived = self.try_request().await;
        self.count(&arrived);
        arrived
    }

    async fn try_request(&self) -> Result<(), QueueError> {
        self.injector.cross_network(self.faults.latency_max).await;
        self.deliver_late().await;
        if self.injector.has_outage() {
            self.injector.counters.count("queue outage");
            return Err(QueueError::Unavailable("outage".into()));
        }
        if self
            .injector
            .roll("queue unavailable", self.faults.unavailable)
        {
            return Err(QueueError::Unavailable("refused".into()));
        }
        Ok(())
    }

    /// Sends the answer over the network, where it may be lost.
    async fn send_answer<T>(&self, answer: Result<T, QueueError>) -> Result<T, QueueError> {
        self.injector.cross_network(self.faults.latency_max).await;
        let timeouts = self.faults.execute_and_timeout;
        let answer = match answer {
            Ok(_) if self.injector.roll("queue timed out after", timeouts) => {
                Err(QueueError::Unavailable("timed out".into()))
            }
            answer => answer,
        };
        self.count(&answer);
        answer
    }

    /// Delivers the late messages whose time has come.
    async fn deliver_late(&self) {
        let now = Instant::now();
        let arrived: Vec<TaskRef> = {
            let mut service = self.service();
            let arrived = service.late.extract_if(.., |(at, _)| *at <= now);
            arrived.map(|(_, message)| message).collect()
        };
        if !arrived.is_empty() {
            self.inner.send(arrived).await;
        }
    }

    /// Lets a message arrive after a random delay.
    fn delay(&self, message: TaskRef) {
        let max_ms = u64::try_from(self.faults.delay_max.as_millis()).unwrap_or(u64::MAX);
        let delay = Duration::from_millis(self.injector.rng.below(max_ms.max(1)) + 1);
        let at = Instant::now() + delay;
        self.service().late.push((at, message));
    }

    /// Decides about the faults of one sent message: whether it reaches the queue now, and whether its send succeeds.
    fn decide_send(&self, message: &TaskRef) -> (bool, bool) {
        let roll = |name, rate| self.injector.roll(name, rate);
        if roll("queue entry failed", self.faults.entry_failed) {
            return (roll("queue entry failed but sent", 500), false);
        }
        if roll("message lost", self.faults.lose) {
            return (false, true);
        }
        if roll("message late", self.faults.delay) {
            self.delay(message.clone());
            return (false, true);
        }
        if roll("message doubled", self.faults.double) {
            self.delay(message.clone());
        }
        (true, true)
    }
}

#[async_trait]
impl TaskQueue for FaultyQueue {
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError> {
        self.send_request().await?;
        let answer = if self.is_blocked(job) {
            self.injector.counters.count("queue not created again yet");
            Err(QueueError::Unavailable("deleted recently".into()))
        } else {
            self.inner.ensure(job).await
        };
        self.send_answer(answer).await
    }

    async fn remove(&self, job: &JobName) -> Result<(), QueueError> {
        self.send_request().await?;
        let answer = self.inner.remove(job).await;
        self.send_answer(answer).await
    }

    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        if let Err(error) = self.send_request().await {
            return messages.iter().map(|_| Err(error.clone())).collect();
        }
        let decide = |message| self.decide_send(message);
        let decisions: Vec<_> = messages.iter().map(decide).collect();
        let arriving = messages.into_iter().zip(&decisions);
        let arriving = arriving.filter(|(_, (arrives, _))| *arrives);
        let sent: Vec<TaskRef> = arriving.map(|(message, _)| message).collect();
        let mut results = self.inner.send(sent).await.into_iter();
        let answers: Vec<_> = decisions
            .into_iter()
            .map(|(arrives, succeeds)| {
                let result = if arrives { results.next() } else { None };
                match succeeds {
                    true => result.unwrap_or(Ok(())),
                    false => Err(QueueError::Unavailable("entry failed".into())),
                }
            })
            .collect();
        match self.send_answer(Ok(())).await {
            Ok(()) => {
                answers.iter().for_each(|answer| self.count(answer));
                answers
            }
            Err(error) => answers.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        self.send_request().await?;
        let until = Instant::now() + wait;
        let mut got = loop {
            self.deliver_late().await;
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
        got.retain(|_| !self.injector.roll("message lost after receive", lost));
        if got.len() > 1
            && self
                .injector
                .roll("messages reordered", self.faults.reorder)
        {
            got.reverse();
        }
        self.send_answer(Ok(got)).await
    }

    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.send_request().await?;
        let answer = self.inner.ack(receipts).await;
        self.send_answer(answer).await
    }

    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError> {
        self.send_request().await?;
        let answer = self.inner.nack(receipts, delay).await;
        self.send_answer(answer).await
    }

    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError> {
        self.send_request().await?;
        let answer = self.inner.extend(receipts).await;
        self.send_answer(answer).await
    }

    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError> {
        self.send_request().await?;
        let answer = self.inner.depth(job).await;
        self.send_answer(answer).await
    }

    fn visibility_timeout(&self) -> Duration {
        self.inner.visibility_timeout()
    }

    async fn refill_demand(&self) -> Vec<RefillDemand> {
        if self.faults.unbounded {
            return std::future::pending().await;
        }
        self.injector.gate.wait_until_running().await;
        let demands = self.inner.refill_demand().await;
        self.injector.gate.wait_until_running().await;
        demands
    }

    fn refilled(&self, demand: &RefillDemand, complete: bool) {
        if !self.injector.gate.is_dead() {
            self.inner.refilled(demand, complete);
        }
    }
}
