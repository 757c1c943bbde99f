//! The queue seam: one queue per job, carrying references to tasks.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_domain::{JobName, TaskRef};

/// A queue per job. It is a hint, never the truth: an implementation may lose, repeat, delay or reorder messages,
/// and the system stays correct. What it should do is listed here and checked by the queue conformance suite.
///
/// Batches succeed or fail entry by entry; the answers come in the order of the entries. Nothing here retries: the
/// caller does, or the store's trigger times do.
#[async_trait]
pub trait TaskQueue: Send + Sync + 'static {
    /// Makes the queue of `job` if there is none. Safe to repeat.
    async fn ensure(&self, job: &JobName) -> Result<(), QueueError>;

    /// Removes the queue of `job` with all its messages. Removing a missing one is fine.
    async fn remove(&self, job: &JobName) -> Result<(), QueueError>;

    /// Sends messages, each to the queue of its job. A message that is already there (same task and token) may be
    /// sent again: it counts as sent, and may or may not be there twice. [`QueueError::Full`] means that the queue
    /// is bounded and will ask for the rest by [`TaskQueue::starving`].
    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>>;

    /// Takes up to `max` messages of `job`, the most urgent first as far as the queue can tell. Waits up to `wait`
    /// for the first one; an empty answer is no error. Taken messages are invisible until their visibility timeout
    /// passes, unless acknowledged, returned or extended.
    ///
    /// Cancel safe: when the future is dropped, messages it had taken become visible again, at the latest when
    /// their visibility timeout passes.
    async fn receive(
        &self,
        job: &JobName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError>;

    /// Deletes messages. A receipt that is unknown or too old deletes nothing and is no error.
    async fn ack(&self, receipts: Vec<Receipt>) -> Result<(), QueueError>;

    /// Returns messages: each is visible again after `delay`.
    async fn nack(&self, receipts: Vec<Receipt>, delay: Duration) -> Result<(), QueueError>;

    /// Keeps messages invisible for the full visibility timeout from now.
    async fn extend(&self, receipts: Vec<Receipt>) -> Result<(), QueueError>;

    /// How many messages there are, approximately.
    async fn depth(&self, job: &JobName) -> Result<Depth, QueueError>;

    /// How long a received message stays invisible.
    fn visibility_timeout(&self) -> Duration;

    /// Waits until bounded queues have room for messages they once refused, and names them. Unbounded queues never
    /// answer. The caller reads the store's ready tasks, sends them, and then calls [`TaskQueue::refilled`].
    async fn starving(&self) -> Vec<Starving> {
        std::future::pending().await
    }

    /// Says that everything ready (`complete`), or only as much as there was room for, has been sent again.
    fn refilled(&self, _starving: &Starving, _complete: bool) {}
}

/// A bounded queue that refused messages and has room now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starving {
    /// Whose queue.
    pub job: JobName,
    /// How many messages it can take.
    pub room: usize,
    /// Tells a refusal after this answer from one before it.
    pub epoch: u64,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// What it refers to.
    pub task: TaskRef,
    /// What to acknowledge it by.
    pub receipt: Receipt,
    /// How often it was received, this time included; approximate.
    pub received: u32,
}

/// Names one receipt of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Receipt {
    /// Of a queue in this process, or behind our own protocol.
    Local {
        /// Whose queue.
        job: JobName,
        /// Number of the receipt.
        number: u64,
    },
    /// Of another queue service: its own handle.
    Handle {
        /// Whose queue.
        job: JobName,
        /// The service's handle.
        handle: Arc<str>,
    },
}

impl Receipt {
    /// Whose queue the message is in.
    pub const fn job(&self) -> &JobName {
        match self {
            Self::Local { job, .. } | Self::Handle { job, .. } => job,
        }
    }
}

/// How many messages a queue holds, approximately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Waiting to be received.
    pub visible: u64,
    /// Received, neither acknowledged nor visible again.
    pub in_flight: u64,
}

/// What went wrong with a queue, by what the caller can do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueueError {
    /// There is no such queue; [`TaskQueue::ensure`] makes it.
    #[error("queue of job '{0}' does not exist")]
    NotFound(JobName),
    /// The queue is bounded and has no room; it asks for more by itself.
    #[error("queue of job '{0}' is full")]
    Full(JobName),
    /// Too many calls; try again later.
    #[error("queue is throttled")]
    Throttled,
    /// The queue cannot be reached, or did not answer in time; the call may have taken effect.
    #[error("queue is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The call itself is wrong and will never work.
    #[error("queue refused the call: {0}")]
    Invalid(Arc<str>),
}

impl QueueError {
    /// Whether the same call may work later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Full(_) | Self::Throttled | Self::Unavailable(_))
    }
}
