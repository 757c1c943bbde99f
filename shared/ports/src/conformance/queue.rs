//! What every task queue must do. [`crate::queue_conformance`] makes one test of each case.

mod cases;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use dueline_domain::{JobName, Priority, TaskId, TaskRef, Timestamp, Token, Weight};

use crate::{Delivery, Receipt, TaskQueue};

pub use cases::*;

/// A queue to put through the suite, and what to expect of it.
#[derive(Clone)]
pub struct QueueUnderTest {
    /// The queue.
    pub queue: Arc<dyn TaskQueue>,
    /// What it can do.
    pub settings: Settings,
}

/// What a queue can do, and how patient to be with it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Begins the name of every job, so that tests can share a queue service.
    pub job_prefix: String,
    /// Time that a real service may take beyond what was asked for; a test waits that much longer at most.
    pub slack: Duration,
    /// Time by which it may be early, because clocks differ.
    pub early: Duration,
    /// Whether messages come in order of priority, due time and arrival.
    pub ordered: bool,
    /// Whether a message that is there already is not taken twice, and each is delivered once.
    pub dedups: bool,
}

impl Settings {
    /// Of a queue inside this process: exact.
    pub fn exact() -> Self {
        Self {
            job_prefix: String::new(),
            slack: Duration::from_millis(2),
            early: Duration::ZERO,
            ordered: true,
            dedups: true,
        }
    }
}

impl QueueUnderTest {
    async fn job(&self, name: &str) -> JobName {
        let job = JobName::parse(&format!("{}{name}", self.settings.job_prefix));
        let job = job.expect("a legal job name");
        self.queue.ensure(&job).await.expect("the queue is made");
        job
    }

    async fn send(&self, messages: Vec<TaskRef>) {
        for result in self.queue.send(messages).await {
            result.expect("the message is sent");
        }
    }

    /// Receives up to `max` messages, waiting for the first no longer than the slack.
    async fn receive(&self, job: &JobName, max: usize) -> Vec<Delivery> {
        self.receive_within(job, max, self.settings.slack).await
    }

    async fn receive_within(&self, job: &JobName, max: usize, wait: Duration) -> Vec<Delivery> {
        let received = self.queue.receive(job, max, wait).await;
        received.expect("receiving works")
    }

    /// Receives until `count` messages have come, or nothing comes any more.
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

    /// How long a returned message may take to come back.
    fn visibility_and_slack(&self) -> Duration {
        self.visibility() + self.settings.slack
    }
}

/// The message number `n` of a job: its own task and token, normal priority, due at once.
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

/// One test per case of the queue suite. `factory` is an async function that answers a
/// [`QueueUnderTest`](crate::conformance::queue::QueueUnderTest); with `paused` the tests run on paused time, which
/// only a queue inside the process can.
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
            no_more_is_received_than_asked_for
            f_028_a_waiting_receiver_gets_a_message_when_it_arrives
            an_empty_queue_answers_nothing_after_the_wait
            an_unacknowledged_message_comes_back
            an_extended_message_stays_invisible
            a_returned_message_is_visible_after_its_delay
            a_waiting_receiver_gets_a_message_returned_with_a_delay
            an_old_receipt_does_nothing
            ensuring_an_existing_queue_keeps_its_messages
            a_missing_queue_is_not_found
            one_missing_queue_does_not_spoil_a_batch
            f_022_f_024_messages_come_by_priority_due_time_and_arrival
            a_repeated_message_counts_as_sent
            f_030_one_of_twenty_waiting_receivers_gets_a_message
            f_030_twenty_receivers_share_a_thousand_messages
            f_029_a_receiver_that_goes_away_loses_nothing
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
