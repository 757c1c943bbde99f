//! A cache of queue lengths. Reading the depth of a queue may cost a request over the network, so a result is reused
//! for a while.

use std::{collections::BTreeMap, time::Duration};

use dueline_domain::JobName;
use tokio::time::Instant;

/// A queue with this many visible messages is considered slow rather than lossy. Its messages are not sent again,
/// unless their tasks delay others.
const HEALTHY_DEPTH: u64 = 1_000;
/// How long a result of a long or missing queue is reused. No message of such a queue is sent again, so a stale result
/// loses nothing.
const LONG_FOR: Duration = Duration::from_secs(5);
/// How long any other result is reused.
const SHORT_FOR: Duration = Duration::from_secs(1);

/// What the length of a queue indicates about messages that seem to be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueLength {
    /// The queue has none of them.
    Empty,
    /// The queue may have some of them.
    Short,
    /// The queue is long, and they are probably still waiting in it.
    Long,
    /// The queue does not exist and cannot be created.
    Missing,
}

impl QueueLength {
    pub(crate) const fn of(visible: u64) -> Self {
        match visible {
            0 => Self::Empty,
            HEALTHY_DEPTH.. => Self::Long,
            _ => Self::Short,
        }
    }
}

/// Recently read lengths of queues.
#[derive(Debug, Default)]
pub(crate) struct QueueLengths(BTreeMap<JobName, (QueueLength, Instant)>);

impl QueueLengths {
    /// Removes expired results.
    pub(crate) fn remove_expired(&mut self, now: Instant) {
        self.0.retain(|_, (_, until)| now < *until);
    }

    /// The length of a queue, if it was read recently.
    pub(crate) fn get(&self, job: &JobName) -> Option<QueueLength> {
        self.0.get(job).map(|(length, _)| *length)
    }

    /// Caches the length of a queue.
    pub(crate) fn insert(&mut self, job: JobName, length: QueueLength, now: Instant) {
        let valid_for = match length {
            QueueLength::Long | QueueLength::Missing => LONG_FOR,
            QueueLength::Empty | QueueLength::Short => SHORT_FOR,
        };
        self.0.insert(job, (length, now + valid_for));
    }
}
