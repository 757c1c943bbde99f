//! The queue seam: one queue per job, which carries references to tasks.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef};

/// A queue per job. Messages are hints; the store has the truth. An implementation may lose, repeat, delay or reorder
/// messages without making the system incorrect. The queue conformance suite checks what it should do.
///
/// Batches succeed or fail entry by entry; results are in the order of the entries. Implementations do not retry: the
/// caller does, or the task is enqueued again at its trigger time.
#[async_trait]
pub trait TaskQueue: Send + Sync + 'static {
    /// Creates the queue of `job` if it does not exist. Safe to repeat.
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError>;

    /// Removes the queue of `job` with all its messages. A missing queue is not an error.
    async fn remove(&self, job: &JobName) -> Result<(), QueueError>;

    /// Sends messages, each to the queue of its job. A message that is already in the queue (same task and token) may
    /// be sent again: it counts as sent, and the queue may keep one or both. [`QueueError::Full`] means that the queue
    /// is bounded and will request the refused messages by [`TaskQueue::refill_demand`].
    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>>;

    /// Receives up to `max` messages of `job`, the most urgent first if the queue orders them. Waits up to `wait` for
    /// the first message; an empty result is not an error. Received messages are invisible until their visibility
    /// timeout passes, unless acknowledged, returned or extended.
    ///
    /// Cancel safe: when the future is dropped, messages that it had received become visible again, at the latest when
    /// their visibility timeout passes.
    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError>;

    /// Deletes messages. A receipt that is unknown or too old deletes nothing and is not an error.
    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError>;

    /// Returns messages: each is visible again after `delay`.
    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError>;

    /// Keeps messages invisible for the full visibility timeout from now.
    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError>;

    /// The approximate number of messages.
    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError>;

    /// How long a received message stays invisible.
    fn visibility_timeout(&self) -> Duration;

    /// Waits until bounded queues that refused messages have room again, and returns their demands. Never returns for
    /// unbounded queues. The caller reads the store's ready tasks, sends them, and then calls [`TaskQueue::refilled`].
    async fn refill_demand(&self) -> Vec<RefillDemand> {
        std::future::pending().await
    }

    /// Reports that ready tasks have been sent again: all of them (`complete`), or as many as there was room for.
    fn refilled(&self, _demand: &RefillDemand, _complete: bool) {}
}

/// The room that a bounded queue has again after it refused messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefillDemand {
    /// The job of the queue.
    pub job: JobName,
    /// How many messages the queue accepts.
    pub room: usize,
    /// Number of this demand. It distinguishes messages refused since from those refused before.
    pub epoch: u64,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The content of the message.
    pub task: TaskRef,
    /// Names this delivery, for ack and nack.
    pub receipt: Receipt,
    /// How many times the message was received, including this time; approximate.
    pub received: u32,
}

/// Names one delivery of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Receipt {
    /// Of a queue in this process, or behind Dueline's own protocol.
    Local {
        /// The job of the queue.
        job: JobName,
        /// Number of the receipt.
        number: u64,
    },
    /// Of a queue service with receipt handles of its own.
    Handle {
        /// The job of the queue.
        job: JobName,
        /// The service's handle.
        handle: Arc<str>,
    },
}

impl Receipt {
    /// The job of the queue.
    pub const fn job(&self) -> &JobName {
        match self {
            Self::Local { job, .. } | Self::Handle { job, .. } => job,
        }
    }
}

/// The approximate number of messages in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Messages that can be received.
    pub visible: u64,
    /// Messages that were received and are neither acknowledged nor visible again.
    pub in_flight: u64,
}

/// An error of a queue. The variants differ in what the caller can do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueueError {
    /// The queue does not exist; [`TaskQueue::ensure`] creates it.
    #[error("queue of job '{0}' does not exist")]
    NotFound(JobName),
    /// The queue is bounded and has no room. It requests the messages later by [`TaskQueue::refill_demand`].
    #[error("queue of job '{0}' is full")]
    Full(JobName),
    /// Too many calls; try again later.
    #[error("queue is throttled")]
    Throttled,
    /// The queue cannot be reached or did not answer in time. The call may have taken effect.
    #[error("queue is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The call is not valid, and would fail again.
    #[error("queue refused the call: {0}")]
    Invalid(Arc<str>),
}

impl QueueError {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Full(_) | Self::Throttled | Self::Unavailable(_))
    }
}
