//! The conformance suite of the queue seam. [`crate::queue_conformance`] makes one test of each case.

mod cases;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use dueline_domain::{JobName, Priority, TaskId, TaskRef, Timestamp, Token, Weight};

use crate::{Delivery, Receipt, TaskQueue};

pub use cases::*;

/// A queue that the suite tests, and what the suite may expect of it.
#[derive(Clone)]
pub struct QueueUnderTest {
    /// The queue.
    pub queue: Arc<dyn TaskQueue>,
    /// Capabilities and tolerances of the queue.
    pub settings: QueueTestSettings,
}

/// The capabilities of a queue, and the tolerances of its tests.
#[derive(Clone, Debug)]
pub struct QueueTestSettings {
    /// Prefix of every job name, so that tests can share a queue service.
    pub job_prefix: String,
    /// How much later than requested a real service may answer.
    pub slack: Duration,
    /// How much earlier than requested a real service may answer, because clocks differ.
    pub early: Duration,
    /// The order in which messages are received.
    pub order: QueueOrder,
    /// Whether a message that is already in the queue is not stored twice, and each message is delivered once.
    pub dedups: bool,
}

/// The order in which a queue's messages are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// By priority, due time and arrival.
    Full,
    /// By the level of the priority: no message is received together with a more urgent one that comes after it.
    Levels,
    /// None. The receiver orders what it has received.
    None,
}

impl QueueTestSettings {
    /// The settings of a queue inside this process, whose timing is exact.
    pub fn exact() -> Self {
        Self {
            job_prefix: String::new(),
            slack: Duration::from_millis(2),
            early: Duration::ZERO,
            order: QueueOrder::Full,
            dedups: true,
        }
    }
}

impl QueueUnderTest {
    async fn job(&self, name: &str) -> JobName {
        let job = JobName::parse(&format!("{}{name}", self.settings.job_prefix));
        let job = job.expect("a legal job name");
        self.queue.ensure(&job).await.expect("the queue is created");
        job
    }

    async fn send(&self, messages: Vec<TaskRef>) {
        for result in self.queue.send(messages).await {
            result.expect("the message is sent");
        }
    }

    /// Receives up to `max` messages. Waits no longer than the slack for the first one.
    async fn receive(&self, job: &JobName, max: usize) -> Vec<Delivery> {
        self.receive_within(job, max, self.settings.slack).await
    }

    async fn receive_within(&self, job: &JobName, max: usize, wait: Duration) -> Vec<Delivery> {
        let received = self.queue.receive(job, max, wait).await;
        received.expect("receiving works")
    }

    /// Receives until there are `count` messages or the queue is empty.
    async fn receive_all(&self, job: &JobName, count: usize) -> Vec<Delivery> {
        let mut all = Vec::new();
        while all.len() < count {
            let more = self.receive(job, count - all.len()).await;
            if more.is_empty() {
                break;
            }
            all.extend(more);
        }
        all
    }

    async fn is_empty(&self, job: &JobName) -> bool {
        let got = self.queue.receive(job, 10, Duration::ZERO).await;
        got.expect("receiving works").is_empty()
    }

    async fn ack(&self, deliveries: &[Delivery]) {
        let acked = self.queue.ack(receipts(deliveries)).await;
        acked.expect("acknowledging works");
    }

    async fn nack(&self, deliveries: &[Delivery], delay: Duration) {
        let nacked = self.queue.nack(receipts(deliveries), delay).await;
        nacked.expect("returning works");
    }

    fn visibility(&self) -> Duration {
        self.queue.visibility_timeout()
    }

    /// How long a message may take to become visible again after it was received.
    fn visibility_and_slack(&self) -> Duration {
        self.visibility() + self.settings.slack
    }
}

/// Message number `n` of a job. Each number has a task and token of its own; priority is normal, the due time past.
pub fn message(job: &JobName, n: u64) -> TaskRef {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&n.to_be_bytes());
    TaskRef {
        job: job.clone(),
        id: TaskId::from_bytes(id),
        token: Token::from_random(n + 1),
        priority: Priority::default(),
        weight: Weight::ONE,
        due_at: Timestamp::EPOCH,
        trace: None,
    }
}

fn messages(job: &JobName, numbers: std::ops::Range<u64>) -> Vec<TaskRef> {
    numbers.map(|n| message(job, n)).collect()
}

fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
    deliveries.iter().map(|d| d.receipt.clone()).collect()
}

fn ids(deliveries: &[Delivery]) -> BTreeSet<TaskId> {
    deliveries.iter().map(|d| d.task.id).collect()
}

/// Makes one test per case of the queue suite. `factory` is an async function that returns a
/// [`QueueUnderTest`](crate::conformance::queue::QueueUnderTest). With `paused` the tests run on paused time, which
/// only works for a queue inside the process.
#[macro_export]
macro_rules! queue_conformance {
    (paused $factory:expr) => {
        $crate::queue_conformance!(@all true, $factory);
    };
    (@all $paused:tt, $factory:expr) => {
        $crate::queue_conformance!(@cases $paused, $factory,
            a_message_is_sent_received_and_acknowledged
            jobs_do_not_see_each_others_messages
            batches_of_any_size_go_through
            no_more_messages_are_received_than_requested
            f_028_a_waiting_receiver_gets_a_message_when_it_arrives
            an_empty_queue_returns_nothing_after_the_wait
            an_unacknowledged_message_becomes_visible_again
            an_extended_message_stays_invisible
            a_returned_message_is_visible_after_its_delay
            a_waiting_receiver_gets_a_message_returned_with_a_delay
            an_old_receipt_does_nothing
            ensuring_an_existing_queue_keeps_its_messages
            a_missing_queue_is_not_found
            a_missing_queue_fails_only_its_own_messages_of_a_batch
            f_022_f_024_messages_are_received_by_priority_due_time_and_arrival
            a_repeated_message_counts_as_sent
            f_030_one_of_twenty_waiting_receivers_gets_a_message
            f_030_twenty_receivers_share_a_thousand_messages
            f_029_a_receiver_that_is_dropped_loses_no_message
            the_depth_counts_visible_and_in_flight
        );
    };
    (@cases $paused:tt, $factory:expr, $($case:ident)*) => {$(
        #[tokio::test(start_paused = $paused)]
        async fn $case() {
            $crate::conformance::queue::$case($factory().await).await;
        }
    )*};
    ($factory:expr) => {
        $crate::queue_conformance!(@all false, $factory);
    };
}
